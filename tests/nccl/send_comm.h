// The sending end of one connection. It waits for clear-to-send entries in memory, WRITEs the data
// where they say, notifies with an immediate, and takes its source memory back at the completion.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "layout.h"
#include "report.h"
#include "send_queue.h"
#include "transport.h"

namespace traffic::nccl {

class SendComm {
 public:
  // `queues` judge the completions of the connection's QPs, of which `qp_base` is the first.
  SendComm(const Layout& layout, uint32_t qp_base, std::vector<SendQueue*> queues,
           Transport* transport, Report* report);

  // Where the other end writes its clear-to-send entries.
  const Region& ring() const { return ring_; }
  void remote_set(RemoteRegion data, RemoteRegion sizes) {
    data_ = data;
    remote_sizes_ = sizes;
  }
  // Ends the traffic after the groups that were sent.
  void stop() { total_ = std::min(total_, next_); }
  // Sends the next group if it may. Returns whether it did.
  bool send_next();
  // One QP has completed its share of a group.
  void share_done(uint64_t group);
  void finish();

  bool is_done() const { return lowest_ == total_; }
  uint64_t total() const { return total_; }
  uint64_t sent() const { return next_; }
  uint64_t completed() const { return completed_; }
  uint64_t bytes_completed() const { return bytes_; }

 private:
  const CtsEntry* entries_of(uint64_t group) const;
  bool is_clear(uint64_t group) const;
  void check_entries(uint64_t group);
  void check_unused(uint64_t slot);
  void source_fill(uint64_t group);
  bool share_post(uint64_t group, uint32_t qp);
  SendRequest data_request(uint64_t group, uint32_t index, uint32_t qp) const;
  void check_source(uint64_t slot, const char* when);

  const Layout layout_;
  const uint32_t qp_base_;
  const std::vector<SendQueue*> queues_;
  Transport* const transport_;
  Report* const report_;
  Region ring_, sizes_, source_;
  RemoteRegion data_, remote_sizes_;
  std::deque<uint32_t> shares_left_;  // QPs that groups from lowest_ on wait for
  uint64_t lowest_ = 0;               // all groups below this one are complete
  uint64_t next_ = 0;
  uint64_t completed_ = 0;
  uint64_t total_;
  uint64_t bytes_ = 0;
};

}  // namespace traffic::nccl

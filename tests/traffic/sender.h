// The sending end of one flow. It makes messages, keeps their source memory, judges what READs and
// atomics brought, and checks that nothing writes to local buffers after their completion.
#pragma once

#include <cstdint>

#include "plan.h"
#include "report.h"
#include "transport.h"

namespace traffic {

class Sender {
 public:
  Sender(const Plan& plan, Transport* transport, Report* report);

  void target_set(RemoteRegion target, RemoteRegion control) {
    target_ = target;
    control_ = control;
  }
  // Allows messages below `upto`. The limit never falls: a credit WRITE that is executed again only
  // repeats an older value.
  void credit(uint64_t upto) {
    if (upto > credit_) credit_ = upto;
  }
  // The flow ends after one more message, which is signaled, so that everything before it
  // completes.
  void stop_soon() {
    if (total_ == UINT64_MAX) total_ = next_ + 1;
  }

  bool may_post() const {
    return next_ < total_ && next_ < credit_ && next_ - retired_ < plan_.window();
  }
  // Fills the source memory of the next message and returns its WR without a wr_id.
  SendRequest make_next();
  // The post call has returned. An inline payload was copied, so its buffer is overwritten at once.
  void posted(uint64_t number);
  // The message has completed, or a later signaled one has.
  void retire(uint64_t number);
  void finish();

  uint64_t posted_count() const { return next_; }
  uint64_t retired() const { return retired_; }
  uint64_t total() const { return total_; }
  uint64_t credit_limit() const { return credit_; }
  bool is_done() const { return retired_ == total_; }
  uint64_t bytes_retired() const { return bytes_retired_; }
  const Plan& plan() const { return plan_; }

 private:
  std::span<std::byte> source_slot(uint64_t number) const {
    return source_.slot(number % plan_.source_slots(), plan_.slot_size());
  }
  uint64_t local_key(uint64_t number) const {
    return plan_.poison_key(Domain::kLocalPoison, number % plan_.source_slots());
  }
  bool is_signaled(uint64_t number) const;
  void fill_payload(uint64_t number, std::span<std::byte> slot) const;
  void check_read(uint64_t number);
  void check_atomic(uint64_t number);
  void check_scrubbed(uint64_t slot, const char* when);

  const Plan plan_;
  Report* const report_;
  Region source_;
  RemoteRegion target_, control_;
  uint64_t next_ = 0;     // the next message to post
  uint64_t retired_ = 0;  // all below it are complete
  uint64_t credit_ = 0;
  uint64_t total_;
  uint64_t bytes_retired_ = 0;
};

// The first bytes of every SEND: which flow and which message it is.
struct SendHeader {
  uint32_t magic;
  uint32_t flow;  // direction << 16 | qp
  uint32_t number;
  uint32_t size;
};
static_assert(sizeof(SendHeader) == kHeaderBytes);
inline constexpr uint32_t kHeaderMagic = 0x54465453;

inline uint32_t header_flow(const Plan& plan) {
  return static_cast<uint32_t>(plan.direction()) << 16 | plan.qp();
}

// Offsets in the control region that each end opens to the other.
inline constexpr uint64_t kControlCredit = 0;    // at the sender: how many messages it may post
inline constexpr uint64_t kControlCounter = 64;  // at the receiver: what FETCH_ADDs add to
inline constexpr uint64_t kControlBytes = 128;   // for each QP

}  // namespace traffic

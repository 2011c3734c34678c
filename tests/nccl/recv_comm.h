// The receiving end of one connection. It posts receives, WRITEs to the sender where the data may
// go, judges what comes, reads one byte back before it takes the data, and poisons the memory.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "layout.h"
#include "receive_order.h"
#include "report.h"
#include "send_queue.h"
#include "transport.h"

namespace traffic::nccl {

class RecvComm {
 public:
  // `queues` judge the completions of the connection's QPs, of which `qp_base` is the first. The
  // last QP serves to read back.
  RecvComm(const Layout& layout, uint32_t qp_base, std::vector<SendQueue*> queues,
           Transport* transport, Report* report);

  const Region& data() const { return data_; }
  const Region& sizes() const { return sizes_; }
  void remote_set(RemoteRegion ring) { remote_ring_ = ring; }
  // Asks for the next group if it may. Returns whether it did.
  bool grant_next();
  // Takes a successful receive completion of one QP.
  void notification(uint32_t qp, const ibv_wc& wc);
  void flush_done(uint64_t group);
  // The sender says how many groups there are in all.
  void total_set(uint64_t total) { total_ = total; }
  void finish();

  bool is_done() const { return lowest_ == total_; }
  uint64_t granted() const { return granted_; }
  uint64_t consumed() const { return consumed_; }
  size_t receives_pending() const;

 private:
  static constexpr uint32_t kFlushSlot = 64;
  static constexpr uint32_t kConsumed = UINT32_MAX;
  std::span<std::byte> slot_of(uint64_t group, uint32_t index) const {
    return data_.slot(Layout::slot_index(group, layout_.target_slots(), index),
                      layout_.slot_size());
  }
  uint64_t poison_of(uint64_t group, uint32_t index) const {
    return layout_.poison_key(Domain::kPoison,
                              Layout::slot_index(group, layout_.target_slots(), index));
  }
  std::span<std::byte> sizes_of(uint64_t group) const {
    return sizes_.slot(group % kRing, kGroupMax * sizeof(uint32_t));
  }
  uint64_t sizes_poison(uint64_t group) const {
    return layout_.poison_key(Domain::kReceivePoison, group % kRing);
  }
  std::span<std::byte> flush_of(uint64_t group) const {
    return flush_.slot(group % layout_.options().depth, kFlushSlot);
  }
  uint64_t flush_poison(uint64_t group) const {
    return layout_.poison_key(Domain::kLocalPoison, group % layout_.options().depth);
  }
  void check_poison(std::span<std::byte> bytes, uint64_t key, const char* what, uint64_t slot);
  void check_target(uint64_t group);
  void entries_fill(uint64_t group);
  void grant_post(uint64_t group);
  void judge_data(uint64_t group);
  void judge_sizes(uint64_t group);
  // What a group's READ reads back, and what it must find there.
  struct LastByte {
    const std::byte* place;
    uint32_t rkey;
    std::byte value;
  };
  std::optional<LastByte> last_byte(uint64_t group) const;
  bool flush_post(uint64_t group);  // false: the group has nothing to read back
  void consume(uint64_t group);

  const Layout layout_;
  const uint32_t qp_base_;
  const std::vector<SendQueue*> queues_;
  Transport* const transport_;
  Report* const report_;
  Region entries_;  // the source of the entries in the sender's ring
  Region data_, sizes_, flush_;
  RemoteRegion remote_ring_;
  std::vector<ReceiveOrder> receives_;
  std::deque<uint32_t> shares_left_;  // notifications that groups from lowest_ on lack
  uint64_t lowest_ = 0;               // all groups below this one are consumed
  uint64_t granted_ = 0;
  uint64_t consumed_ = 0;
  uint64_t total_ = UINT64_MAX;
};

}  // namespace traffic::nccl

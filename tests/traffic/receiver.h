// The receiving end of one flow. It judges notifications and memory, poisons what was delivered,
// and checks that nothing writes there until the slot is handed back.
#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "plan.h"
#include "receive_queue.h"
#include "report.h"
#include "transport.h"

namespace traffic {

class Receiver {
 public:
  Receiver(const Plan& plan, Transport* transport, Report* report);

  const Region& target() const { return target_; }
  // Judges a successful receive completion of this flow's QP; `queue` is where its WR was posted.
  void notification(const ibv_wc& wc, ReceiveQueue* queue);
  // The sender says that all messages below `upto` are complete; of fetches only the sender knows.
  void fetches_done(uint64_t upto);
  void fence(uint64_t upto);
  // Does what fence() does; no messages follow.
  void total_set(uint64_t total);

  // The sender may post all messages below this number.
  uint64_t granted() const { return granted_; }
  uint64_t consumed() const { return consumed_; }
  bool is_done() const { return consumed_ == total_; }
  bool is_total_known() const { return total_ != UINT64_MAX; }
  const Plan& plan() const { return plan_; }
  // Checks after the quiet period that nothing is missing and nothing was overwritten.
  void finish(uint64_t counter);

 private:
  std::span<std::byte> slot_of(uint64_t number) const {
    return target_.slot(number % plan_.target_slots(), plan_.slot_size());
  }
  uint64_t poison_of(uint64_t number) const {
    return plan_.poison_key(Domain::kPoison, number % plan_.target_slots());
  }
  uint64_t next_notifying(uint64_t from) const;
  uint64_t number_of(const ibv_wc& wc, std::span<const std::byte> buffer, uint64_t expected);
  void check_completion(const ibv_wc& wc, uint64_t number);
  void check_receive_buffer(const ibv_wc& wc, uint64_t number, std::span<std::byte> buffer,
                            ReceiveQueue* queue);
  void check_target(uint64_t number);
  void settle(uint64_t upto);
  void advance();
  void hand_back(uint64_t number);
  void check_phase(uint64_t upto);

  const Plan plan_;
  Report* const report_;
  Region target_;
  uint64_t settled_ = 0;   // a notification or fence covered all below; they are judged
  uint64_t fetched_ = 0;   // READs and atomics below are complete at the sender
  uint64_t consumed_ = 0;  // all below are settled or fetched
  uint64_t granted_ = 0;   // slots handed out
  uint64_t total_ = UINT64_MAX;
  uint64_t phase_begin_ = 0;    // the first message of the current phase
  std::set<uint64_t> skipped_;  // notifications that a later one overtook
};

}  // namespace traffic

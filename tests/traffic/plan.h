// What each message is: a pure function of the traffic options and its number. So the receiver
// knows what to expect without hearing it over the path under test.
#pragma once

#include <algorithm>
#include <cstdint>

#include "options.h"
#include "pattern.h"
#include "report.h"

namespace traffic {

// A flow: the messages that one end sends on one QP. Direction 0 is from client to server.
class Plan {
 public:
  Plan(const Traffic& traffic, int direction, uint32_t qp)
      : traffic_(traffic), direction_(direction), qp_(qp) {}

  const Traffic& traffic() const { return traffic_; }
  int direction() const { return direction_; }
  uint32_t qp() const { return qp_; }

  Op op(uint64_t number) const;
  uint32_t size(uint64_t number) const;
  bool is_inline(uint64_t number) const {
    Op kind = op(number);
    return kind != Op::kRead && kind != Op::kAtomic && size(number) <= traffic_.inline_max &&
           traffic_.inline_max != 0;
  }

  // Whether the message consumes a receive WR at the other end.
  static bool notifies(Op op) {
    return op == Op::kWriteImm || op == Op::kSend || op == Op::kSendImm;
  }
  static bool is_send(Op op) { return op == Op::kSend || op == Op::kSendImm; }
  static bool has_imm(Op op) { return op == Op::kWriteImm || op == Op::kSendImm; }
  // Whether the message is written into the target slot of its number.
  static bool writes_target(Op op) { return op == Op::kWrite || op == Op::kWriteImm; }
  // Whether only the sender learns that the message is complete.
  static bool is_fetch(Op op) { return op == Op::kRead || op == Op::kAtomic; }

  uint32_t window() const { return traffic_.depth; }
  // A slot stays poisoned until this many further messages are consumed; then it is handed back.
  uint32_t linger() const { return std::max(4u, traffic_.depth / 2); }
  uint32_t target_slots() const { return window() + linger(); }
  uint32_t source_slots() const { return window() * 2; }
  uint32_t receive_buffers() const { return window() * 2; }
  uint32_t slot_size() const { return (std::max(traffic_.size, 64u) + 63u) & ~63u; }

  // Plain WRITEs have no notification. After each phase the sender says over the side channel that
  // they are complete (a "fence" line). In a phase half of the slots are written twice, which shows
  // the order; the others are written once, so that no later WRITE hides a wrong one.
  bool is_phased() const { return traffic_.op == Op::kWrite; }
  uint64_t phase_length() const { return target_slots() * 3ull / 2; }

  uint64_t payload_key(uint64_t number) const {
    return pattern_key(traffic_.seed, Domain::kPayload, direction_, qp_, number);
  }
  uint64_t poison_key(Domain domain, uint64_t slot) const {
    return pattern_key(traffic_.seed, domain, direction_, qp_, slot);
  }

 private:
  uint64_t choice(uint64_t number) const {
    return pattern_key(traffic_.seed, Domain::kChoice, direction_, qp_, number);
  }

  const Traffic traffic_;
  const int direction_;
  const uint32_t qp_;
};

inline Op Plan::op(uint64_t number) const {
  if (traffic_.op != Op::kMixed) return traffic_.op;
  uint64_t dice = choice(number) % 100;
  // Each window must contain a notification, else the credits would stop.
  uint64_t period = std::max(1u, traffic_.depth / 4);
  if (number % period == period - 1) dice = 45 + dice % 45;
  if (dice < 45) return Op::kWrite;
  if (dice < 65) return Op::kWriteImm;
  if (dice < 78) return Op::kSend;
  if (dice < 90) return Op::kSendImm;
  return Op::kRead;
}

inline uint32_t Plan::size(uint64_t number) const {
  Op kind = op(number);
  if (kind == Op::kAtomic) return 8;
  if (!traffic_.random_size) return traffic_.size;
  uint64_t dice = choice(number) >> 8;
  // A third of the messages are small, for the edge cases of inline data and headers.
  uint32_t limit = dice % 3 == 0 ? std::min(traffic_.size, 128u) : traffic_.size;
  uint32_t size = static_cast<uint32_t>((dice >> 4) % (uint64_t{limit} + 1));
  return is_send(kind) ? std::max(size, kHeaderBytes) : size;
}

}  // namespace traffic

// Judges notifications, and the memory that messages were written to.
#include "receiver.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sender.h"

namespace traffic {

Receiver::Receiver(const Plan& plan, Transport* transport, Report* report)
    : plan_(plan),
      report_(report),
      target_(transport->region_add(size_t{plan.target_slots()} * plan.slot_size())) {
  for (uint64_t i = 0; i < plan_.target_slots(); ++i) pattern_fill(poison_of(i), slot_of(i));
  if (plan_.is_phased()) {
    granted_ = plan_.phase_length();
  } else {
    while (granted_ < plan_.window()) hand_back(granted_++);
  }
}

uint64_t Receiver::next_notifying(uint64_t from) const {
  if (plan_.traffic().op != Op::kMixed) return from;
  while (!Plan::notifies(plan_.op(from))) ++from;
  return from;
}

uint64_t Receiver::number_of(const ibv_wc& wc, std::span<const std::byte> buffer,
                             uint64_t expected) {
  if (wc.wc_flags & IBV_WC_WITH_IMM) return ntohl(wc.imm_data);
  SendHeader header;
  std::memcpy(&header, buffer.data(), sizeof header);
  if (header.magic == kHeaderMagic && header.flow == header_flow(plan_)) return header.number;
  report_->violation("payload-mismatch",
                     fmt::format("qp {} message {}: no header", plan_.qp(), expected));
  return expected;
}

void Receiver::notification(const ibv_wc& wc, ReceiveQueue* queue) {
  std::span<std::byte> buffer = queue->consume(wc.wr_id);
  if (buffer.empty()) return;
  uint64_t expected = next_notifying(settled_);
  uint64_t number = number_of(wc, buffer, expected);
  if (number >= granted_ || !Plan::notifies(plan_.op(number))) {
    report_->violation("notification-unexpected", fmt::format("qp {} message {}, waiting for {}",
                                                              plan_.qp(), number, expected));
    queue->release(buffer, buffer.size());
    return;
  }
  if (number < settled_) {
    // This message comes late: either another one overtook it, or it took effect twice.
    const char* name =
        skipped_.erase(number) != 0 ? "notification-order" : "notification-duplicate";
    report_->violation(name,
                       fmt::format("qp {} message {} after {}", plan_.qp(), number, settled_));
    queue->release(buffer, buffer.size());
    return;
  }
  for (uint64_t i = expected; i < number; i = next_notifying(i + 1)) skipped_.insert(i);
  if (number != expected)
    report_->violation("notification-order",
                       fmt::format("qp {} message {}, not {}", plan_.qp(), number, expected));
  check_completion(wc, number);
  check_receive_buffer(wc, number, buffer, queue);
  settle(number + 1);
}

void Receiver::check_completion(const ibv_wc& wc, uint64_t number) {
  Op op = plan_.op(number);
  ibv_wc_opcode opcode = Plan::is_send(op) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  bool has_imm = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (wc.opcode != opcode || has_imm != Plan::has_imm(op))
    report_->violation(
        "receive-opcode",
        fmt::format("qp {} message {}: opcode {} flags {:#x}", plan_.qp(), number,
                    static_cast<int>(wc.opcode), static_cast<unsigned>(wc.wc_flags)));
  if (wc.byte_len != plan_.size(number))
    report_->violation("receive-length",
                       fmt::format("qp {} message {}: {} bytes, not {}", plan_.qp(), number,
                                   wc.byte_len, plan_.size(number)));
}

void Receiver::check_receive_buffer(const ibv_wc& wc, uint64_t number, std::span<std::byte> buffer,
                                    ReceiveQueue* queue) {
  uint32_t used = 0;
  if (Plan::is_send(plan_.op(number))) {
    used = plan_.size(number);
    std::vector<std::byte> expected(used);
    pattern_fill(plan_.payload_key(number), expected);
    SendHeader header{kHeaderMagic, header_flow(plan_), static_cast<uint32_t>(number), used};
    std::memcpy(expected.data(), &header, sizeof header);
    auto wrong = std::mismatch(expected.begin(), expected.end(), buffer.begin()).first;
    if (wrong != expected.end())
      report_->violation("payload-mismatch", fmt::format("qp {} SEND {} byte {} of {}", plan_.qp(),
                                                         number, wrong - expected.begin(), used));
  }
  if (ptrdiff_t at = queue->touched_from(buffer, used); at >= 0) {
    report_->violation("stray-write", fmt::format("qp {} message {} of {} bytes, receive buffer "
                                                  "byte {}",
                                                  plan_.qp(), number, used, at));
    used = static_cast<uint32_t>(buffer.size());
  }
  queue->release(buffer, used);
}

void Receiver::check_target(uint64_t number) {
  auto slot = slot_of(number);
  uint32_t size = plan_.size(number);
  if (auto wrong = pattern_mismatch(plan_.payload_key(number), slot.first(size)))
    report_->violation("payload-mismatch", fmt::format("qp {} WRITE {} byte {} of {}", plan_.qp(),
                                                       number, *wrong, size));
  if (auto wrong = pattern_mismatch(poison_of(number), slot.subspan(size), size))
    report_->violation("stray-write", fmt::format("qp {} WRITE {} of {} bytes, byte {} beyond",
                                                  plan_.qp(), number, size, *wrong));
  pattern_fill(poison_of(number), slot);
}

// Everything before a delivered notification must be whole in memory, and nothing may write there
// from now on (C3).
void Receiver::settle(uint64_t upto) {
  for (; settled_ < upto; ++settled_)
    if (Plan::writes_target(plan_.op(settled_)) && !skipped_.contains(settled_))
      check_target(settled_);
  advance();
}

void Receiver::fetches_done(uint64_t upto) {
  for (; fetched_ < upto; ++fetched_)
    if (plan_.op(fetched_) == Op::kRead) pattern_fill(poison_of(fetched_), slot_of(fetched_));
  if (!Plan::notifies(plan_.traffic().op) && plan_.traffic().op != Op::kMixed) settled_ = upto;
  advance();
}

void Receiver::fence(uint64_t upto) {
  if (!plan_.is_phased()) return fetches_done(upto);
  check_phase(upto);
  settled_ = fetched_ = upto;
  consumed_ = upto;
  granted_ = upto + plan_.phase_length();
}

void Receiver::total_set(uint64_t total) {
  if (plan_.is_phased() && phase_begin_ < total) fence(total);
  fetches_done(total);
  total_ = total;
  // For silent messages after the last notification, the sender's word counts as a notification.
  if (next_notifying(settled_) >= total) settle(total);
  advance();
}

void Receiver::advance() {
  if (total_ != UINT64_MAX && next_notifying(settled_) >= total_ && settled_ < total_)
    return settle(total_);
  while (consumed_ < total_) {
    bool is_fetch = Plan::is_fetch(plan_.op(consumed_));
    if (is_fetch ? consumed_ >= fetched_ : consumed_ >= settled_) break;
    ++consumed_;
  }
  if (plan_.is_phased()) return;
  while (granted_ < consumed_ + plan_.window()) hand_back(granted_++);
}

// Gives the slot of message `number` to the sender. The last message of the slot was consumed long
// ago, so any byte that is not poison comes from a WRITE that should not have run.
void Receiver::hand_back(uint64_t number) {
  auto slot = slot_of(number);
  if (auto wrong = pattern_mismatch(poison_of(number), slot)) {
    report_->violation("ghost-write",
                       fmt::format("qp {} target slot {} at byte {} before message {}", plan_.qp(),
                                   number % plan_.target_slots(), *wrong, number));
    pattern_fill(poison_of(number), slot);
  }
  if (plan_.op(number) == Op::kRead)
    pattern_fill(plan_.payload_key(number), slot.first(plan_.size(number)));
}

// Plain WRITEs to one slot overwrite each other in order: the slot holds the last one, and the tail
// of a longer one before it.
void Receiver::check_phase(uint64_t upto) {
  std::vector<std::byte> expected(plan_.slot_size());
  uint64_t slots = plan_.target_slots();
  for (uint64_t s = 0; s < slots; ++s) {
    pattern_fill(poison_of(s), expected);
    uint64_t first = phase_begin_ + (s + slots - phase_begin_ % slots) % slots;
    for (uint64_t m = first; m < upto; m += slots)
      pattern_fill(plan_.payload_key(m), std::span(expected).first(plan_.size(m)));
    auto slot = slot_of(s);
    auto wrong = std::mismatch(expected.begin(), expected.end(), slot.begin()).first;
    if (wrong != expected.end())
      report_->violation("payload-mismatch",
                         fmt::format("qp {} slot {} byte {} after WRITEs {}..{}", plan_.qp(), s,
                                     wrong - expected.begin(), phase_begin_, upto));
    pattern_fill(poison_of(s), slot);
  }
  phase_begin_ = upto;
}

void Receiver::finish(uint64_t counter) {
  if (!is_done())
    report_->violation("notification-missing", fmt::format("qp {}: {} of {} messages consumed",
                                                           plan_.qp(), consumed_, total_));
  for (uint64_t number : skipped_)
    report_->violation("notification-missing", fmt::format("qp {} message {}", plan_.qp(), number));
  // Slots of messages that were never sent may hold the source of a READ.
  for (uint64_t number = consumed_; !plan_.is_phased() && number < granted_; ++number)
    if (plan_.op(number) == Op::kRead) pattern_fill(poison_of(number), slot_of(number));
  for (uint64_t s = 0; s < plan_.target_slots(); ++s)
    if (auto wrong = pattern_mismatch(poison_of(s), slot_of(s)))
      report_->violation("ghost-write", fmt::format("qp {} target slot {} at byte {} at the end",
                                                    plan_.qp(), s, *wrong));
  if (plan_.traffic().op == Op::kAtomic && counter != total_)
    report_->violation("atomic-value", fmt::format("qp {} counter {} after {} FETCH_ADDs",
                                                   plan_.qp(), counter, total_));
}

}  // namespace traffic

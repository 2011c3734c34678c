// Makes messages and judges what comes back to the sender's own memory.
#include "sender.h"

#include <cstring>

namespace traffic {

Sender::Sender(const Plan& plan, Transport* transport, Report* report)
    : plan_(plan),
      report_(report),
      source_(transport->region_add(size_t{plan.source_slots()} * plan.slot_size())),
      total_(plan.traffic().messages != 0 ? plan.traffic().messages : UINT64_MAX) {
  for (uint32_t i = 0; i < plan_.source_slots(); ++i) pattern_fill(local_key(i), source_slot(i));
  credit_ = plan_.is_phased() ? plan_.phase_length() : plan_.window();
}

bool Sender::is_signaled(uint64_t number) const {
  const Traffic& traffic = plan_.traffic();
  return (number + 1) % traffic.signal_every == 0 || number + 1 == total_ ||
         (plan_.is_phased() && (number + 1) % plan_.phase_length() == 0);
}

void Sender::fill_payload(uint64_t number, std::span<std::byte> slot) const {
  uint32_t size = plan_.size(number);
  pattern_fill(plan_.payload_key(number), slot.first(size));
  if (Plan::is_send(plan_.op(number))) {
    SendHeader header{kHeaderMagic, header_flow(plan_), static_cast<uint32_t>(number), size};
    std::memcpy(slot.data(), &header, sizeof header);
  }
}

SendRequest Sender::make_next() {
  uint64_t number = next_++;
  Op op = plan_.op(number);
  auto slot = source_slot(number);
  check_scrubbed(number % plan_.source_slots(), "before its reuse");
  if (!Plan::is_fetch(op)) fill_payload(number, slot);

  SendRequest request{};
  request.is_signaled = is_signaled(number);
  request.is_inline = plan_.is_inline(number);
  request.imm = static_cast<uint32_t>(number);
  request.local = slot.data();
  request.length = plan_.size(number);
  request.lkey = source_.lkey;
  request.remote = target_.base + number % plan_.target_slots() * plan_.slot_size();
  request.rkey = target_.rkey;
  switch (op) {
    case Op::kWrite:
      request.opcode = IBV_WR_RDMA_WRITE;
      break;
    case Op::kWriteImm:
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      break;
    case Op::kSend:
      request.opcode = IBV_WR_SEND;
      break;
    case Op::kSendImm:
      request.opcode = IBV_WR_SEND_WITH_IMM;
      break;
    case Op::kAtomic:
      request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
      request.remote = control_.base + kControlCounter;
      request.rkey = control_.rkey;
      request.add = 1;
      break;
    default:
      request.opcode = IBV_WR_RDMA_READ;
      break;
  }
  return request;
}

void Sender::posted(uint64_t number) {
  if (plan_.is_inline(number)) pattern_fill(local_key(number), source_slot(number));
}

void Sender::retire(uint64_t number) {
  Op op = plan_.op(number);
  if (op == Op::kRead) check_read(number);
  if (op == Op::kAtomic) check_atomic(number);
  pattern_fill(local_key(number), source_slot(number));
  retired_ = number + 1;
  bytes_retired_ += plan_.size(number);
}

void Sender::check_read(uint64_t number) {
  auto slot = source_slot(number);
  uint32_t size = plan_.size(number);
  if (auto wrong = pattern_mismatch(plan_.payload_key(number), slot.first(size)))
    report_->violation("read-mismatch", fmt::format("qp {} message {} byte {} of {}", plan_.qp(),
                                                    number, *wrong, size));
  if (auto wrong = pattern_mismatch(local_key(number), slot.subspan(size), size))
    report_->violation("stray-write", fmt::format("qp {} READ {} of {} bytes, byte {} beyond",
                                                  plan_.qp(), number, size, *wrong));
}

void Sender::check_atomic(uint64_t number) {
  uint64_t value;
  std::memcpy(&value, source_slot(number).data(), sizeof value);
  // Only this flow adds to the counter: another value means that a FETCH_ADD was lost or ran twice.
  if (value != number)
    report_->violation("atomic-value",
                       fmt::format("qp {} FETCH_ADD {} returned {}", plan_.qp(), number, value));
}

void Sender::check_scrubbed(uint64_t slot, const char* when) {
  if (auto wrong = pattern_mismatch(local_key(slot), source_slot(slot))) {
    report_->violation("ghost-write", fmt::format("local buffer {} of qp {} at byte {} {}", slot,
                                                  plan_.qp(), *wrong, when));
    pattern_fill(local_key(slot), source_slot(slot));
  }
}

void Sender::finish() {
  for (uint32_t i = 0; i < plan_.source_slots(); ++i) check_scrubbed(i, "at the end");
}

}  // namespace traffic

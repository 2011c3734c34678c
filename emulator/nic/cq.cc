// Completion queue.
#include "nic/cq.h"

#include <cstring>

#include "nic/planted.h"

namespace cxemu {

namespace {

constexpr uint32_t kIndexMask = 0xffffff;  // consumer indices in doorbell records have 24 bits
constexpr uint32_t kArmSolicitedOnly = 1u << 24;
constexpr uint32_t kArmPoison = 0xffffffff;
constexpr uint8_t kCqeSolicited = 1u << 1;

}  // namespace

Cq::Cq(const CqConfig& config, uint32_t number)
    : config_(config), number_(number), arm_handled_(kArmPoison) {
  for (uint32_t i = 0; i < config_.cqe_count; i++) {
    entry(i)->opcode_owner = kCqeInvalid << 4 | 1;
  }
  config_.db[1] = kArmPoison;
}

uint64_t Cq::taken(uint32_t doorbell) const {
  return producer_ - ((producer_ - doorbell) & kIndexMask);
}

CqeLayout* Cq::entry(uint64_t index) const {
  auto* at =
      static_cast<uint8_t*>(config_.buffer) + (index & (config_.cqe_count - 1)) * config_.cqe_size;
  return reinterpret_cast<CqeLayout*>(at + config_.cqe_size - kCqeSize);
}

bool Cq::write(const Cqe& cqe, uint64_t timestamp_ns) {
  if (overrun_) return false;
  if (!config_.ignore_overrun &&
      producer_ - taken(doorbell_load(&config_.db[0])) >= config_.cqe_count &&
      !CXEMU_PLANT(full_queue_overwritten)) {
    overrun_ = true;
    async_events_++;
    config_.sink->async_event(IBV_EVENT_CQ_ERR, config_.user_handle);
    return false;
  }

  CqeLayout* at = entry(producer_);
  const bool error = cqe.opcode == kCqeRequesterError || cqe.opcode == kCqeResponderError;
  const bool solicited = cqe.solicited || (error && !CXEMU_PLANT(error_not_solicited));
  memset(at, 0, offsetof(CqeLayout, opcode_owner));
  at->flags_rqpn =
      htobe32((cqe.grh ? kCqeGrh : 0) | uint32_t{cqe.packet} << kCqePacketShift | cqe.remote_qpn);
  at->srqn_uidx = htobe32(cqe.uidx);
  at->imm = cqe.imm_be;
  at->byte_count = htobe32(cqe.byte_count);
  at->wqe_opcode_qpn = htobe32(uint32_t{cqe.wqe_opcode} << 24 | cqe.qpn);
  at->wqe_counter = htobe16(cqe.wqe_counter);
  if (error) {
    auto* bytes = reinterpret_cast<uint8_t*>(at);
    bytes[kCqeVendorSyndromeOffset] = vendor_syndrome(cqe.syndrome);
    bytes[kCqeSyndromeOffset] = cqe.syndrome;
  } else {
    at->timestamp = htobe64(timestamp_ns);
  }
  const uint8_t owner = CXEMU_PLANT(owner_bit_stuck) ? 0 : owner_bit(producer_);
  const auto opcode_owner =
      static_cast<uint8_t>(cqe.opcode << 4 | (cqe.solicited ? kCqeSolicited : 0) | owner);
  // The poller reads this byte first and then takes the rest of the entry as complete.
  __atomic_store_n(&at->opcode_owner, opcode_owner, __ATOMIC_RELEASE);
  producer_++;
  if (solicited) solicited_producer_ = producer_;
  if (has_channel()) event_check();
  return true;
}

bool Cq::resize(void* buffer, uint32_t cqe_count, uint32_t cqe_size) {
  const uint64_t first = taken(doorbell_load(&config_.db[0]));
  const uint64_t left = producer_ - first;
  // One slot of each ring is for the entry that ends the old ring.
  if (overrun_ || left >= config_.cqe_count || left >= cqe_count) return false;

  CqeLayout* last = entry(producer_);
  memset(last, 0, offsetof(CqeLayout, opcode_owner));
  const auto opcode_owner = static_cast<uint8_t>(kCqeResize << 4 | owner_bit(producer_));
  __atomic_store_n(&last->opcode_owner, opcode_owner, __ATOMIC_RELEASE);

  // The application counts that entry, and copies those it has not taken to the slots after it. It
  // is no new completion, so it must neither raise an event nor hide one that is due.
  if (left == 0) {
    notified_producer_ = producer_ + 1;
  } else if (notified_producer_ > first) {
    notified_producer_++;
  }
  if (solicited_producer_ > first) solicited_producer_++;
  producer_++;
  config_.buffer = buffer;
  config_.cqe_count = cqe_count;
  config_.cqe_size = cqe_size;
  return true;
}

bool Cq::event_check() {
  const uint32_t arm = doorbell_load(&config_.db[1]);
  if ((arm == arm_handled_ && !CXEMU_PLANT(arm_never_spent)) || arm == kArmPoison) return false;
  const bool solicited_only = (arm & kArmSolicitedOnly) != 0 && !CXEMU_PLANT(solicited_arm_widened);
  const uint64_t newest = solicited_only ? solicited_producer_ : producer_;
  const uint64_t notified = CXEMU_PLANT(arm_never_spent) ? 0 : notified_producer_;
  if (newest <= taken(arm) || newest <= notified) return false;
  arm_handled_ = arm;
  notified_producer_ = producer_;
  if (!has_channel()) return false;
  comp_events_++;
  config_.sink->completion(config_.user_handle, config_.channel_fd);
  return true;
}

}  // namespace cxemu

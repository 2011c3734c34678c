// Faults of a NIC, applied to its packets.
#include "nic/wire.h"

#include <algorithm>
#include <cstring>

namespace cxemu {

uint8_t* Wire::reserve(uint32_t dst_qpn, size_t size) {
  reserved_slot_ = static_cast<int>(dst_qpn >> 16);
  reserved_ = carrier_.reserve(reserved_slot_, size);
  return reserved_;
}

void Wire::commit(FabricNic& nic, uint32_t dst_ipv4_be, RcOpcode opcode, size_t size,
                  uint64_t now_ns) {
  nic.tx_packets.fetch_add(1, std::memory_order_relaxed);
  if (lost(nic, opcode)) return;
  const uint32_t delay_us = nic.delay_us.load(std::memory_order_relaxed);
  std::deque<Delayed>* held = held_by(nic, delay_us != 0);
  // Behind packets that are still held, also when the delay was just switched off: a wire keeps
  // order.
  if (held == nullptr || (delay_us == 0 && held->empty())) {
    capture_.sent(nic, dst_ipv4_be, reserved_, size, false);
    carrier_.commit(nic.ipv4_be, dst_ipv4_be, size, false);
    return;
  }
  held->push_back({now_ns + uint64_t{delay_us} * 1000, reserved_slot_, dst_ipv4_be,
                   std::vector<uint8_t>(reserved_, reserved_ + size)});
}

std::deque<Wire::Delayed>* Wire::held_by(FabricNic& nic, bool create) {
  for (Held& held : held_) {
    if (held.nic == &nic) return &held.packets;
  }
  if (!create) return nullptr;
  held_.push_back({&nic, {}});
  return &held_.back().packets;
}

bool Wire::delayed_send(uint64_t now_ns) {
  bool any = false;
  for (Held& held : held_) {
    while (!held.packets.empty() && held.packets.front().due_ns <= now_ns) {
      const Delayed& first = held.packets.front();
      uint8_t* to = carrier_.reserve(first.slot, first.packet.size());
      if (to == nullptr) break;
      memcpy(to, first.packet.data(), first.packet.size());
      capture_.sent(*held.nic, first.dst_ipv4_be, to, first.packet.size(), false);
      carrier_.commit(held.nic->ipv4_be, first.dst_ipv4_be, first.packet.size(), false);
      held.packets.pop_front();
    }
    any |= !held.packets.empty();
  }
  return any;
}

uint64_t Wire::delayed_due_ns() const {
  uint64_t due_ns = UINT64_MAX;
  for (const Held& held : held_) {
    if (!held.packets.empty()) due_ns = std::min(due_ns, held.packets.front().due_ns);
  }
  return due_ns;
}

bool Wire::admits(FabricNic& nic, RcOpcode opcode) {
  if (lost(nic, opcode)) return false;
  nic.rx_packets.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool Wire::lost(FabricNic& nic, RcOpcode opcode) {
  const uint32_t faults = nic.faults.load(std::memory_order_relaxed);
  const uint32_t loss_ppm = nic.loss_ppm.load(std::memory_order_relaxed);
  if (faults == 0 && loss_ppm == 0) return false;
  const uint32_t fatal = kLinkDown | kDead | (opcode_is_response(opcode) ? kDropAcks : kDropData);
  if ((faults & fatal) == 0 && (loss_ppm == 0 || random_ppm() >= loss_ppm)) return false;
  nic.dropped_packets.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// xorshift64*: seeded, so that a run with loss can be repeated.
uint32_t Wire::random_ppm() {
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return static_cast<uint32_t>((random_ * 0x2545f4914f6cdd1dull >> 32) % 1'000'000);
}

}  // namespace cxemu

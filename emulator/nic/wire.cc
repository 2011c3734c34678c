// Applies a NIC's faults to its packets.
#include "nic/wire.h"

#include <algorithm>
#include <cstring>

#include "fabric/flap.h"
#include "fabric/gid.h"

namespace cxemu {

namespace {

// A packet out of order changes places with the next one. If none follows, it is sent alone after
// this time.
constexpr uint64_t kDisplacedNs = 1'000'000;

uint8_t ops_of(Operation opcode, const uint8_t* packet) {
  if (opcode_is_send(opcode)) return kOpSend;
  if (opcode_is_write(opcode)) return kOpWrite;
  switch (opcode) {
    case Operation::kReadRequest:
      return kOpReadRequest;
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return kOpAtomicRequest;
    case Operation::kAtomicAcknowledge:
      return kOpAtomicResponse;
    case Operation::kAcknowledge:
      return (packet[kBthSize] & kAethTypeMask) == 0 ? kOpAck : kOpNak;
    default:
      return kOpReadResponse;
  }
}

bool lost(uint32_t faults, Operation opcode) {
  const uint32_t fatal = kLinkDown | kDead | (opcode_is_response(opcode) ? kDropAcks : kDropData);
  return (faults & fatal) != 0;
}

// A wire keeps order: a later packet is due later, even if the delay was made shorter.
uint64_t due_ns(const std::deque<Wire::Held>& packets, uint64_t now_ns, uint32_t delay_us) {
  const uint64_t due = now_ns + uint64_t{delay_us} * 1000;
  return packets.empty() ? due : std::max(due, packets.back().due_ns);
}

}  // namespace

void Wire::commit_faulted(FabricNic& nic, uint32_t dst_ipv4_be, Operation opcode, size_t size,
                          uint64_t now_ns) {
  Verdict verdict;
  if ((nic.faults.load(std::memory_order_acquire) & kRules) != 0) {
    verdict = rules_.judge(nic,
                           {.tick = FaultTick::kPacket,
                            .direction = kDirectionOut,
                            .op = ops_of(opcode, reserved_),
                            .peer_ipv4_be = address_original_be(dst_ipv4_be),
                            .qpn = source_qpn_},
                           now_ns);
  }
  const uint32_t faults = faults_now(nic, now_ns);  // after the rules, which may switch it
  const uint32_t src = (faults & kGidMoved) != 0 ? gid_ipv4_be(nic, source_gid_) : nic.ipv4_be;
  if (verdict.drop || src == 0 || lost(faults, opcode)) {
    nic.dropped_packets.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Queue& queue = queue_of(leaving_, nic);
  const bool wait = verdict.delay_us != 0 || !queue.packets.empty();
  if (!wait && !verdict.reorder && !verdict.duplicate && queue.displaced.empty()) {
    transmit(nic, src, dst_ipv4_be, reserved_, size, verdict.corrupt);
    return;
  }
  Held held = {due_ns(queue.packets, now_ns, verdict.delay_us),
               reserved_slot_,
               src,
               dst_ipv4_be,
               verdict.corrupt,
               verdict.duplicate,
               verdict.reorder,
               std::vector<uint8_t>(reserved_, reserved_ + size)};
  const auto same_way = [&](const Held& other) { return other.slot == held.slot; };
  if (wait) {
    queue.packets.push_back(std::move(held));
  } else if (verdict.reorder &&
             std::none_of(queue.displaced.begin(), queue.displaced.end(), same_way)) {
    held.due_ns = now_ns + kDisplacedNs;
    queue.displaced.push_back(std::move(held));
  } else {
    transmit(nic, src, dst_ipv4_be, reserved_, size, verdict.corrupt);
    if (verdict.duplicate) send(nic, held);
    displaced_send(queue, held.slot);
  }
  held_count();
}

bool Wire::shaped_ready(size_t size, bool urgent) {
  closes_ = false;
  return urgent || shaper_.ready(*source_nic_, nic_by_address(fabric_, source_dst_be_), source_qpn_,
                                 source_class_, size);
}

void Wire::shaped_spend(size_t size, bool urgent) {
  FabricNic* to = nic_by_address(fabric_, source_dst_be_);
  if (urgent) return shaper_.charge(*source_nic_, to, size);
  shaper_.spend(*source_nic_, to, source_qpn_, source_class_, size);
  closes_ = shaper_.closes(*source_nic_, to, source_class_, size);
}

bool Wire::send(const FabricNic& nic, const Held& held) {
  uint8_t* to = carrier_.reserve(held.slot, held.packet.size());
  if (to == nullptr) return false;
  memcpy(to, held.packet.data(), held.packet.size());
  transmit(nic, held.src_ipv4_be, held.dst_ipv4_be, to, held.packet.size(), held.corrupt);
  return true;
}

void Wire::displaced_send(Queue& queue, int slot) {
  std::erase_if(queue.displaced,
                [&](const Held& held) { return held.slot == slot && send(*queue.nic, held); });
}

bool Wire::delayed_send(uint64_t now_ns) {
  if (held_ == 0) return false;
  for (Queue& queue : leaving_) {
    while (!queue.packets.empty() && queue.packets.front().due_ns <= now_ns) {
      Held& first = queue.packets.front();
      const auto same_way = [&](const Held& other) { return other.slot == first.slot; };
      if (first.reorder && std::none_of(queue.displaced.begin(), queue.displaced.end(), same_way)) {
        first.due_ns = now_ns + kDisplacedNs;
        queue.displaced.push_back(std::move(first));
      } else {
        if (!send(*queue.nic, first)) break;
        if (first.duplicate) send(*queue.nic, first);
        displaced_send(queue, first.slot);
      }
      queue.packets.pop_front();
    }
    std::erase_if(queue.displaced, [&](const Held& held) {
      return held.due_ns <= now_ns && send(*queue.nic, held);
    });
  }
  held_count();
  return held_ != 0;
}

bool Wire::admits_faulted(FabricNic& nic, const Packet& packet, const Arrival& arrival,
                          int service_class, uint64_t now_ns) {
  Verdict verdict;
  if ((nic.faults.load(std::memory_order_acquire) & kRules) != 0) {
    verdict = rules_.judge(nic,
                           {.tick = FaultTick::kPacket,
                            .direction = kDirectionIn,
                            .op = ops_of(packet.opcode, arrival.data),
                            .peer_ipv4_be = address_original_be(arrival.src_ipv4_be),
                            .qpn = packet.dest_qpn},
                           now_ns);
  }
  if (verdict.drop || lost(faults_now(nic, now_ns), packet.opcode)) {
    nic.dropped_packets.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  if (verdict.corrupt) {
    nic.icrc_errors.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  tally_.received(nic, packet.opcode, arrival.size);
  Queue& queue = queue_of(arriving_, nic);
  const bool wait = verdict.delay_us != 0 || !queue.packets.empty();
  const bool displace = !wait && verdict.reorder && queue.displaced.empty();
  const bool paced = !wait && !displace && shaper_.paces(nic);
  if (wait || verdict.duplicate || displace || paced) {
    Held held = {due_ns(queue.packets, now_ns, verdict.delay_us),
                 0,
                 arrival.src_ipv4_be,
                 arrival.dst_ipv4_be,
                 false,
                 false,
                 false,
                 std::vector<uint8_t>(arrival.data, arrival.data + arrival.size),
                 service_class};
    if (displace) {
      held.due_ns = now_ns + kDisplacedNs;
      queue.displaced.push_back(std::move(held));
    } else if (paced) {
      if (verdict.duplicate) shaper_.arrived(nic, held);
      shaper_.arrived(nic, std::move(held));
    } else {
      if (wait && verdict.duplicate) queue.packets.push_back(held);
      queue.packets.push_back(std::move(held));
    }
  }
  // A displaced packet follows directly after this one.
  if (!displace) {
    for (Held& held : queue.displaced) held.due_ns = now_ns;
  }
  held_count();
  return !wait && !displace && !paced;
}

std::vector<Wire::Held> Wire::arrivals_take(uint64_t now_ns) {
  std::vector<Held> due;
  if (held_arrivals_ == 0) return due;
  for (Queue& queue : arriving_) {
    const auto take = [&](Held&& held) {
      if (shaper_.paces(*queue.nic)) return shaper_.arrived(*queue.nic, std::move(held));
      due.push_back(std::move(held));
    };
    while (!queue.packets.empty() && queue.packets.front().due_ns <= now_ns) {
      take(std::move(queue.packets.front()));
      queue.packets.pop_front();
    }
    std::erase_if(queue.displaced, [&](Held& held) {
      if (held.due_ns > now_ns) return false;
      take(std::move(held));
      return true;
    });
  }
  shaper_.hand_over(&due);
  held_count();
  return due;
}

bool Wire::event_faulted(FabricNic& nic, FaultTick tick, uint32_t qpn, uint32_t peer_ipv4_be,
                         uint64_t now_ns) {
  if ((nic.faults.load(std::memory_order_acquire) & kRules) != 0) {
    rules_.judge(nic,
                 {.tick = tick,
                  .direction = 0,
                  .op = 0,
                  .peer_ipv4_be = address_original_be(peer_ipv4_be),
                  .qpn = qpn},
                 now_ns);
  }
  return (nic.faults.load(std::memory_order_acquire) & kDead) == 0;
}

Wire::Queue& Wire::queue_of(std::vector<Queue>& queues, FabricNic& nic) {
  for (Queue& queue : queues) {
    if (queue.nic == &nic) return queue;
  }
  queues.push_back({&nic, {}, {}});
  return queues.back();
}

void Wire::held_count() {
  const auto count = [](const std::vector<Queue>& queues) {
    size_t sum = 0;
    for (const Queue& queue : queues) sum += queue.packets.size() + queue.displaced.size();
    return static_cast<uint32_t>(sum);
  };
  held_ = count(leaving_);
  held_arrivals_ = count(arriving_) + static_cast<uint32_t>(shaper_.waiting_arrivals());
}

uint64_t Wire::delayed_due_ns() const {
  uint64_t due_ns = shaper_.due_ns();
  for (const auto* queues : {&leaving_, &arriving_}) {
    for (const Queue& queue : *queues) {
      if (!queue.packets.empty()) due_ns = std::min(due_ns, queue.packets.front().due_ns);
      for (const Held& held : queue.displaced) due_ns = std::min(due_ns, held.due_ns);
    }
  }
  return due_ns;
}

}  // namespace cxemu

// The part between a NIC's transport and the carrier: the NIC's rates and faults. A NIC applies its
// own faults to what it sends and to what it receives, so a packet passes the faults of both ends.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/fabric.h"
#include "nic/capture.h"
#include "nic/carrier.h"
#include "nic/held_packet.h"
#include "nic/port_tally.h"
#include "nic/roce.h"
#include "nic/rule_book.h"
#include "nic/shaper.h"

namespace cxemu {

class Wire {
 public:
  Wire(FabricFile& fabric, Carrier& carrier, Capture& capture)
      : fabric_(fabric), carrier_(carrier), capture_(capture), rules_(fabric) {}

  void pass_begin(uint64_t now_ns) { shaper_.pass_begin(now_ns); }
  void pass_end() {
    shaper_.pass_end();
    tally_.flush();
  }

  // ---- Sending.

  // The sender of the following packets, and the entry of the GID table that is their source.
  struct Source {
    FabricNic& nic;
    uint32_t qpn;
    int gid_index;
    int service_class;
    uint32_t dst_ipv4_be;
  };
  void source_set(const Source& source) {
    source_nic_ = &source.nic;
    source_qpn_ = source.qpn;
    source_gid_ = source.gid_index;
    source_class_ = source.service_class;
    source_dst_be_ = source.dst_ipv4_be;
    shaping_ = fabric_.shaping.load(std::memory_order_relaxed) != 0;
  }
  // Room for a packet to the process that owns `dst_qpn`; nullptr: the way is full, or it is not
  // the queue pair's turn. An urgent packet waits for no turn.
  uint8_t* reserve(uint32_t dst_qpn, size_t size, bool urgent = false) {
    if (shaping_ && !shaped_ready(size, urgent)) [[unlikely]]
      return nullptr;
    reserved_slot_ = static_cast<int>(dst_qpn >> 16);
    reserved_ = carrier_.reserve(reserved_slot_, size);
    if (shaping_ && reserved_ != nullptr) [[unlikely]]
      shaped_spend(size, urgent);
    return reserved_;
  }
  // Whether the sender has to wait for its turn after the packet that was reserved last.
  bool closes() const { return shaping_ && closes_; }
  // Sends the packet written after the last reserve(), as the faults of `nic` allow.
  void commit(FabricNic& nic, uint32_t dst_ipv4_be, Operation opcode, size_t size,
              uint64_t now_ns) {
    tally_.sent(nic, size);
    if ((nic.faults.load(std::memory_order_relaxed) | held_) == 0) [[likely]] {
      transmit(nic, nic.ipv4_be, dst_ipv4_be, reserved_, size, false);
      return;
    }
    commit_faulted(nic, dst_ipv4_be, opcode, size, now_ns);
  }
  // Sends held packets that are due. Returns whether any is still held.
  bool delayed_send(uint64_t now_ns);

  // ---- Receiving.

  struct Arrival {
    uint32_t src_ipv4_be, dst_ipv4_be;
    const uint8_t* data;
    size_t size;
  };
  // Whether `nic` lets this packet in now. If not, it is lost, or arrivals_take() returns it later.
  // `service_class`: of the queue pair that it is for.
  bool admits(FabricNic& nic, const Packet& packet, const Arrival& arrival, int service_class,
              uint64_t now_ns) {
    if ((nic.faults.load(std::memory_order_relaxed) | held_arrivals_) == 0) [[likely]] {
      tally_.received(nic, packet.opcode, arrival.size);
      return true;
    }
    return admits_faulted(nic, packet, arrival, service_class, now_ns);
  }
  using Held = HeldPacket;
  // Returns held packets that are let in now, in their order.
  std::vector<Held> arrivals_take(uint64_t now_ns);

  // ---- Other events.

  // A work request is about to be started, or a completion to be written. Returns false if the NIC
  // is dead.
  bool event(FabricNic& nic, FaultTick tick, uint32_t qpn, uint32_t peer_ipv4_be, uint64_t now_ns) {
    const uint32_t faults = nic.faults.load(std::memory_order_relaxed);
    return faults == 0 || event_faulted(nic, tick, qpn, peer_ipv4_be, now_ns);
  }

  // When the next held packet is due; UINT64_MAX: none is held.
  uint64_t delayed_due_ns() const;

 private:
  // The packets that one slow NIC holds; packets of other NICs do not wait for them.
  struct Queue {
    FabricNic* nic;
    std::deque<Held> packets;     // in the order in which they are sent on
    std::vector<Held> displaced;  // sent on after the next one of their way, or when due
  };

  void commit_faulted(FabricNic& nic, uint32_t dst_ipv4_be, Operation opcode, size_t size,
                      uint64_t now_ns);
  bool admits_faulted(FabricNic& nic, const Packet& packet, const Arrival& arrival,
                      int service_class, uint64_t now_ns);
  [[gnu::cold, gnu::noinline]] bool shaped_ready(size_t size, bool urgent);
  [[gnu::cold, gnu::noinline]] void shaped_spend(size_t size, bool urgent);
  bool event_faulted(FabricNic& nic, FaultTick tick, uint32_t qpn, uint32_t peer_ipv4_be,
                     uint64_t now_ns);
  void transmit(const FabricNic& nic, uint32_t src_ipv4_be, uint32_t dst_ipv4_be,
                const uint8_t* packet, size_t size, bool corrupt) {
    capture_.record(nic, CaptureDirection::kSent, src_ipv4_be, dst_ipv4_be, packet, size, corrupt);
    carrier_.commit(src_ipv4_be, dst_ipv4_be, size, corrupt);
  }
  bool send(const FabricNic& nic, const Held& held);
  // Sends the displaced packets that follow a packet to this process.
  void displaced_send(Queue& queue, int slot);
  static Queue& queue_of(std::vector<Queue>& queues, FabricNic& nic);
  void held_count();

  FabricFile& fabric_;
  Carrier& carrier_;
  Capture& capture_;
  RuleBook rules_;
  Shaper shaper_;
  PortTally tally_;
  FabricNic* source_nic_ = nullptr;
  uint32_t source_qpn_ = 0;
  int source_gid_ = 0;
  int source_class_ = 0;
  uint32_t source_dst_be_ = 0;
  bool shaping_ = false;  // some NIC of the fabric may have a rate
  bool closes_ = false;
  int reserved_slot_ = 0;
  uint8_t* reserved_ = nullptr;
  std::vector<Queue> leaving_, arriving_;
  uint32_t held_ = 0, held_arrivals_ = 0;  // packets in these
};

}  // namespace cxemu

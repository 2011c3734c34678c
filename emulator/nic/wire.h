// What lies between a NIC's transport and the carrier: the faults of the NIC. A NIC applies its own
// faults to what it sends and to what it receives, so a packet passes those of both ends.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/fabric.h"
#include "nic/capture.h"
#include "nic/carrier.h"
#include "nic/roce.h"

namespace cxemu {

class Wire {
 public:
  Wire(Carrier& carrier, Capture& capture, uint64_t seed)
      : carrier_(carrier), capture_(capture), random_(seed * 2 + 1) {}

  // Room for a packet to the process that owns `dst_qpn`; nullptr: the way is full.
  uint8_t* reserve(uint32_t dst_qpn, size_t size);
  // Sends the packet written at the last reserve(), unless a fault of `nic` eats it.
  void commit(FabricNic& nic, uint32_t dst_ipv4_be, RcOpcode opcode, size_t size, uint64_t now_ns);
  // Sends delayed packets whose time has come. Returns whether any is still held.
  bool delayed_send(uint64_t now_ns);
  // When the next one is due; UINT64_MAX: none is held.
  uint64_t delayed_due_ns() const;

  // Whether `nic` lets this packet in.
  bool admits(FabricNic& nic, RcOpcode opcode);

 private:
  struct Delayed {
    uint64_t due_ns;
    int slot;
    uint32_t dst_ipv4_be;
    std::vector<uint8_t> packet;
  };
  // The packets that one slow NIC holds; another NIC's do not wait behind them.
  struct Held {
    FabricNic* nic;
    std::deque<Delayed> packets;
  };

  std::deque<Delayed>* held_by(FabricNic& nic, bool create);
  bool lost(FabricNic& nic, RcOpcode opcode);
  uint32_t random_ppm();

  Carrier& carrier_;
  Capture& capture_;
  uint64_t random_;
  int reserved_slot_ = 0;
  uint8_t* reserved_ = nullptr;
  std::vector<Held> held_;
};

}  // namespace cxemu

// One end of a connection, played by the test packet by packet: the test determines what arrives at
// the NIC under test, and sees each packet that this NIC sends. So it can check rules in situations
// that two healthy ends would never reach.
#pragma once

#include <string>
#include <vector>

#include "rig.h"

namespace cxemu::test {

// A packet with its payload.
struct Seen : Packet {
  explicit Seen(const Packet& packet)
      : Packet(packet), data(packet.payload, packet.payload + packet.payload_size) {
    payload = nullptr;  // it pointed into the frame
  }
  std::vector<uint8_t> data;

  bool is_nak(NakCode code) const {
    return opcode == Operation::kAcknowledge && syndrome == (kAethNak | code);
  }
  bool is_rnr() const {
    return opcode == Operation::kAcknowledge && (syndrome & kAethTypeMask) == kAethRnr;
  }
  bool is_ack() const {
    return opcode == Operation::kAcknowledge && (syndrome & kAethTypeMask) == 0;
  }
};

class ScriptedPeer {
 public:
  // Plays the process `self` towards `qp`, which belongs to `other`. From now on only this object
  // gets what `other` sends.
  ScriptedPeer(Rig& rig, Process& self, Process& other, TestQp& qp);
  ~ScriptedPeer() { rig_.net.filter = nullptr; }

  // Sends the packet to the NIC; dest_qpn is filled in. It arrives at the next pass().
  void send(Packet packet, const std::vector<uint8_t>& payload = {});
  // Lets `ns` pass and runs one pass of the engine under test; returns what it sent.
  std::vector<Seen> pass(uint64_t ns = 1000);
  // Sends a packet and runs a pass.
  std::vector<Seen> ask(const Packet& packet, const std::vector<uint8_t>& payload = {}) {
    send(packet, payload);
    return pass();
  }

 private:
  Rig& rig_;
  Process& self_;
  Process& other_;
  TestQp& qp_;
  const int slot_;
  std::vector<Seen> seen_;
};

}  // namespace cxemu::test

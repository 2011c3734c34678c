// One end of a connection, played by the test.
#include "scripted_peer.h"

#include <utility>

namespace cxemu::test {

ScriptedPeer::ScriptedPeer(Rig& rig, Process& self, Process& other, TestQp& qp)
    : rig_(rig), self_(self), other_(other), qp_(qp), slot_(static_cast<int>(qp.number() >> 16)) {
  rig_.net.filter = [this](const Packet& packet) {
    seen_.emplace_back(packet);
    return 0;
  };
}

void ScriptedPeer::send(Packet packet, const std::vector<uint8_t>& payload) {
  packet.dest_qpn = qp_.number();
  std::vector<uint8_t> bytes(kMaxHeader);
  bytes.resize(headers_encode(packet, payload.size(), bytes.data()));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(bytes.size() + pad_size(payload.size()));
  rig_.net.inject(slot_, {self_.fabric_nic.ipv4_be, other_.fabric_nic.ipv4_be, std::move(bytes)});
}

std::vector<Seen> ScriptedPeer::pass(uint64_t ns) {
  rig_.clock.advance(ns);
  other_.core.pass();
  return std::exchange(seen_, {});
}

}  // namespace cxemu::test

// What lies between fake NICs: it carries out what their QPs hold, in virtual time. A QP talks to
// the QP that it is connected to, if that QP is connected back with the same PSNs and both ports
// are up; if not, its oldest request fails after the transport's retries.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <vector>

#include "group/test/fake.h"
#include "net/test/virtual_loop.h"

namespace shift::control {

using net::VirtualTime;

class FakeFabric {
 public:
  static constexpr std::chrono::microseconds kTurn{20};

  std::chrono::milliseconds patience{30};  // how long each NIC waits for a QP that does not answer

  explicit FakeFabric(VirtualTime& time) : time_(time) { turn(); }
  void world_add(group::World& world) { worlds_.push_back(&world); }
  // Sees every notification when it is executed: the sender's QP, the request's number, the
  // receiver's QP.
  std::function<void(const group::FakeQp& from, uint64_t wr_id, const group::FakeQp& to)> executed;
  // Whether the network carries what one NIC sends to another.
  std::function<bool(const group::FakeNic& from, const group::FakeNic& to)> carries =
      [](const group::FakeNic&, const group::FakeNic&) { return true; };

  // Whether a request comes through where the network carries what one NIC sends to another.
  std::function<bool(const ibv_send_wr& wr)> passes = [](const ibv_send_wr&) { return true; };

 private:
  using Qp = group::FakeQp;
  using Nic = group::FakeNic;

  void turn() {
    for (group::World* world : worlds_) {
      for (int m = 0; m < world->context.member_count; m++) {
        for (auto& [qpn, qp] : world->nic(m).qps) move(*qp);
      }
    }
    time_.in(kTurn, [this] { turn(); });
  }

  Qp* peer_of(const Qp& qp) {
    if (!Nic::of(qp.qp.context).port_up) return nullptr;
    const auto gid = wire::Gid::from_verbs(qp.attr.ah_attr.grh.dgid);
    for (group::World* world : worlds_) {
      for (int m = 0; m < world->context.member_count; m++) {
        Nic& nic = world->nic(m);
        const auto it = nic.qps.find(qp.attr.dest_qp_num);
        if (nic.gid != gid || !nic.port_up || it == nic.qps.end()) continue;
        if (!carries(Nic::of(qp.qp.context), nic)) return nullptr;
        Qp& peer = *it->second;
        const bool answers = peer.qp.state == IBV_QPS_RTR || peer.qp.state == IBV_QPS_RTS;
        const bool fits =
            peer.attr.dest_qp_num == qp.qp.qp_num && peer.attr.rq_psn == qp.attr.sq_psn &&
            wire::Gid::from_verbs(peer.attr.ah_attr.grh.dgid) == Nic::of(qp.qp.context).gid;
        return answers && fits ? &peer : nullptr;
      }
    }
    return nullptr;
  }

  // Executes one request of the QP in each turn, if it can.
  void move(Qp& qp) {
    if (qp.qp.state != IBV_QPS_RTS || qp.pending_sends.empty()) {
      stuck_.erase(&qp);
      return;
    }
    Qp* peer = peer_of(qp);
    const Qp::Pending next = qp.pending_sends.front();
    if (peer == nullptr || !passes(qp.sends[next.index].wr)) {
      const auto [it, first] = stuck_.emplace(&qp, time_.now());
      if (!first && time_.now() - it->second > patience) qp.break_with(IBV_WC_RETRY_EXC_ERR);
      return;
    }
    stuck_.erase(&qp);
    if (group::is_notification(qp.sends[next.index].wr.opcode)) {
      // A QP whose receiver is not ready tries again, for ever.
      if (!peer->complete_recv()) return;
      if (executed) executed(qp, next.wr_id, *peer);
    }
    if (next.signaled) {
      (void)qp.complete_send();
    } else {
      qp.pending_sends.pop_front();
    }
  }

  VirtualTime& time_;
  std::vector<group::World*> worlds_;
  std::map<const Qp*, net::Loop::Clock::time_point> stuck_;
};

}  // namespace shift::control

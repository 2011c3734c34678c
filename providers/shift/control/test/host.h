// One host of a simulation: fake NICs, one QP or more, and the product's coordinator above them.
#pragma once

#include <map>
#include <vector>

#include "control/coordinator.h"
#include "group/port.h"
#include "group/test/fake.h"
#include "group/test/fake_commands.h"
#include "net/test/memory_network.h"
#include "net/test/virtual_loop.h"

namespace shift::control {

using net::Delegate;
using net::MemoryNetwork;
using net::PeerChannel;
using net::VirtualLoop;
using net::VirtualTime;

// A process has one fault sink, and this process has two hosts: the sink passes each call on to the
// group's host.
struct SinkOfHosts final : group::FaultSink {
  std::map<const group::Context*, group::FaultSink*> sinks;
  void fault(group::Group* group, fsm::Event event, int member, group::Cause cause) override {
    sinks.at(group->context)->fault(group, event, member, cause);
  }
  void verdict_wanted(group::Group* group, int member) override {
    sinks.at(group->context)->verdict_wanted(group, member);
  }
  void pump_wanted(group::Group* group) override { sinks.at(group->context)->pump_wanted(group); }
};

struct Host {
  // The application asks for a timeout of 4.2 ms and six retries, so the NIC has given up after 117
  // ms at most (IBTA 9.7.6.1.3).
  static constexpr uint8_t kTimeout = 10, kRetries = 6;

  Host(VirtualTime& time, MemoryNetwork& network, SinkOfHosts& sinks, uint8_t net, int members = 3,
       int pairs = 1, bool one_cq = true)
      : world(net, members), loop(time), commands(loop), coordinator(loop, commands) {
    coordinator.network_set(network.host_add(coordinator));
    sinks.sinks[&world.context] = &coordinator;
    group::World::Options options;
    options.guarded = options.twins = false;
    options.depth = 64;
    for (int pair = 0; pair < pairs; pair++) {
      cqs.push_back(pair > 0 && one_cq ? cqs.front() : world.make_cq());
      groups.push_back(world.make_group(cqs.back(), cqs.back(), options));
      // Serials do not depend on the tests that ran before.
      groups.back()->life.serial = net + 16u * static_cast<unsigned>(pair);
    }
    cq = cqs.front();
    group = groups.front();
    coordinator.context_add(&world.context, group::ports_up(world.context));
  }
  group::FakeQp& qp(int member) { return group::World::fake(group, member); }
  // The application connects its QP, and the provider tells the coordinator.
  void connect(const Host& peer, uint32_t sq_psn, uint32_t rq_psn, size_t pair = 0) {
    const group::Group& other = *peer.groups[pair];
    groups[pair]->life.ends.remote = other.life.ends.local;
    groups[pair]->life.asked.attr.sq_psn = sq_psn;
    groups[pair]->life.asked.attr.rq_psn = rq_psn;
    groups[pair]->life.asked.attr.timeout = kTimeout;
    groups[pair]->life.asked.attr.retry_cnt = kRetries;
    groups[pair]->life.asked.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
    auto& attr = group::World::fake(groups[pair], group::kDefault).attr;
    attr.dest_qp_num = other.qpn();
    attr.ah_attr.grh.dgid = other.life.ends.local.gid.to_verbs();
    attr.sq_psn = sq_psn;
    attr.rq_psn = rq_psn;
    attr.timeout = kTimeout;
    attr.retry_cnt = kRetries;
  }
  // The application never brings its QP to RTS: it only receives.
  void stay_in_rtr(group::Group* only_receives) {
    only_receives->life.asked.mask &= ~IBV_QP_SQ_PSN;
    for (auto& one : only_receives->life.members) one.can_send = false;
    group::World::fake(only_receives, group::kDefault).qp.state = IBV_QPS_RTR;
  }
  // The application brings that QP to RTS after all.
  void reach_rts(group::Group* sends) {
    sends->life.asked.mask |= IBV_QP_SQ_PSN;
    sends->life.members[group::kDefault].can_send = true;
    group::World::fake(sends, group::kDefault).qp.state = IBV_QPS_RTS;
    coordinator.group_sends(sends);
  }
  void device_says(int member, ibv_event_type type) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.port_num = 1;
    coordinator.device_event(&world.context, member, event);
  }
  void port(int member, bool up, bool tell = true) {
    world.nic(member).port_up = up;
    if (tell) device_says(member, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  }
  // The application is done with its QPs, or its process ends.
  void forget() {
    for (group::Group* made : groups) coordinator.group_forget(made);
    coordinator.context_forget(&world.context);
  }

  group::World world;
  VirtualLoop loop;
  group::FakeCommands commands;
  Coordinator coordinator;
  // A CQ for each QP pair, which several pairs may share, and the group of each pair. `cq` and
  // `group` are the first ones.
  std::vector<group::CompletionQueue*> cqs;
  std::vector<group::Group*> groups;
  group::CompletionQueue* cq;
  group::Group* group;
};

}  // namespace shift::control

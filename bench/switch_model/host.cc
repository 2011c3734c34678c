#include "switch_model/host.h"

#include "group/port.h"

namespace switch_model {

using namespace shift;

namespace {

constexpr int kNics = 2;
constexpr uint8_t kTimeout = 14, kRetries = 7;

}  // namespace

int Commands::nic_add() {
  nics_.emplace_back(time_, command_);
  return static_cast<int>(nics_.size()) - 1;
}

nanoseconds Commands::spent() const {
  nanoseconds sum{};
  for (const Thread& nic : nics_) sum += nic.spent();
  return sum;
}

void Commands::drop_all() {
  for (Thread& nic : nics_) nic.drop_all();
}

Host::Host(net::VirtualTime& time, net::MemoryNetwork& network, Commands& commands, uint8_t net,
           const Options& options)
    : world(net, kNics),
      thread(time, {}),
      board(options.board, [] { return state::ProcessRecord{}; }),
      coordinator(thread, commands) {
  coordinator.network_set(network.host_add(inbox));
  coordinator.reporter().board_set(&board);
  for (int m = 0; m < kNics; m++) {
    world.context.members[m].nic = commands.nic_add();
    world.nic(m).remembers = false;
  }
  group::World::Options wanted;
  wanted.guarded = wanted.twins = false;
  group::CompletionQueue* cq = nullptr;
  for (int i = 0; i < options.qps; i++) {
    if (cq == nullptr || !options.shares_cq) cq = world.make_cq();
    groups.push_back(world.make_group(cq, cq, wanted));
  }
  coordinator.context_add(&world.context, group::ports_up(world.context));
}

// As the application connects its QPs, and the front tells the coordinator.
void Host::connect(const Host& peer, uint32_t sq_psn, uint32_t rq_psn) {
  for (size_t i = 0; i < groups.size(); i++) {
    group::Group& group = *groups[i];
    const group::Group& other = *peer.groups[i];
    group.life.ends.remote = other.life.ends.local;
    auto& attr = group::World::fake(&group, group::kDefault).attr;
    attr.dest_qp_num = other.qpn();
    attr.ah_attr.grh.dgid = other.life.ends.local.gid.to_verbs();
    group.life.asked.mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
    for (ibv_qp_attr* each : {&attr, &group.life.asked.attr}) {
      each->sq_psn = sq_psn;
      each->rq_psn = rq_psn;
      each->timeout = kTimeout;
      each->retry_cnt = kRetries;
    }
    coordinator.group_add(&group);
  }
}

void Host::forget() {
  for (group::Group* group : groups) coordinator.group_forget(group);
  coordinator.context_forget(&world.context);
  board.end();
}

void Sink::fault(group::Group* group, fsm::Event event, int member, group::Cause cause) {
  of.at(group->context)->fault(group, event, member, cause);
}
void Sink::verdict_wanted(group::Group* group, int member) {
  of.at(group->context)->verdict_wanted(group, member);
}
void Sink::pump_wanted(group::Group* group) {
  of.at(group->context)->pump_wanted(group);
}

}  // namespace switch_model

// Starts the faults of a schedule at their time.
#include <utility>

#include "sim/simulation.h"

namespace shift::sim {

using group::kDefault;
using std::chrono::seconds;

namespace {

constexpr char kFaultNames[] = "ab";
// If a step of the protocol does not come within this time, the fault comes without it.
constexpr milliseconds kPatience{20};
constexpr seconds kDrainPatience{3};

bool breaks_channel(What what) {
  return what == What::kCut || what == What::kReconnect || what == What::kChannelLost;
}

}  // namespace

void Simulation::fault_arm() {
  if (next_fault_ >= schedule_.faults.size()) return;
  const Fault& fault = schedule_.faults[next_fault_];
  left_ = fault.count;
  draining_ = false;
  armed_ = true;
  const Duration patience =
      fault.when == When::kDrain ? Duration(kDrainPatience) : Duration(kPatience);
  time_.in(patience, [this, number = next_fault_] {
    if (next_fault_ == number) fault_fire();
  });
}

// Counts a step of this kind.
void Simulation::count(When when) {
  if (!armed_) return;
  const Fault& fault = schedule_.faults[next_fault_];
  const bool counts =
      fault.when == When::kDrain ? draining_ && when == When::kSteps : fault.when == when;
  if (!counts) return;
  if (left_ > 0) {
    left_--;
    return;
  }
  // This call comes from inside the layer, in the middle of a step, so the fault comes after it.
  if (when == When::kTransition) {
    armed_ = false;
    time_.in({}, [this, number = next_fault_] {
      if (next_fault_ == number) fault_fire();
    });
    return;
  }
  fault_fire();
}

void Simulation::fault_fire() {
  armed_ = false;
  const Fault& fault = schedule_.faults[next_fault_];
  if (!gone_[static_cast<size_t>(fault.host)]) fault_start(fault);
  for (Pair& pair : pairs_) pair.fabric.look();
  next_fault_++;
  fault_arm();
}

int Simulation::member_of(const Fault& fault) {
  const group::Group& group = *hosts_[static_cast<size_t>(fault.host)]->group;
  const int members = group.context->member_count;
  if (fault.member >= 0) return fault.member;
  const int current =
      group.life.path.member == group::kNoMember ? members - 1 : group.life.path.member.load();
  return fault.member == Fault::kCurrent ? current : (current + 1) % members;
}

void Simulation::lasts(const Fault& fault, std::function<void()> end) {
  if (fault.lasts.count() != 0) time_.in(fault.lasts, std::move(end));
}

void Simulation::port_restore(int host, int member) {
  const auto h = static_cast<size_t>(host);
  if (dead_[h][member] || gone_[h] || lost_host_ == host) return;
  if (hosts_[h]->world.nic(member).port_up && !told_down_[h][member]) return;
  say("%c/%d works again", kFaultNames[h], member);
  hosts_[h]->port(member, true, std::exchange(told_down_[h][member], false));
}

void Simulation::drained(int host, int member, bool is_drained) {
  const auto h = static_cast<size_t>(host);
  if (gone_[h]) return;
  control::Orders& orders = hosts_[h]->coordinator.orders();
  group::Context* context = &hosts_[h]->world.context;
  const auto bit = static_cast<uint8_t>(1u << member);
  const uint8_t others = static_cast<uint8_t>(orders.drained(context) & ~bit);
  say("%c/%d is %s", kFaultNames[h], member, is_drained ? "drained" : "in use again");
  orders.drained_set(context, is_drained ? others | bit : others);
}

void Simulation::total_loss(int host) {
  auto& lost = *hosts_[static_cast<size_t>(host)];
  lost_host_ = host;
  for (int m = 0; m < lost.world.context.member_count; m++) {
    lost.port(m, false);
  }
}

void Simulation::outage(const Fault& fault, int member) {
  const auto h = static_cast<size_t>(fault.host);
  if (dead_[h][member]) return;
  told_down_[h][member] = told_down_[h][member] || fault.flag;
  hosts_[h]->port(member, false, fault.flag);
  lasts(fault, [this, fault, member] { port_restore(fault.host, member); });
}

// What this host waits for does not come back.
void Simulation::hopeless(int host, bool knows) {
  for (Pair& pair : pairs_) pair.rounds.hopeless(host, knows);
}

void Simulation::nic_blocked(int host, int from, int to, bool blocked) {
  for (Pair& pair : pairs_) pair.fabric.block(host, from, to, blocked);
}

void Simulation::host_gone(int host) {
  gone_[static_cast<size_t>(host)] = true;
  hopeless(1 - host, !schedule_.early);  // of a peer that it has never met it does not hear
  for (Pair& pair : pairs_) {
    pair.judge.host_gone(host);
    pair.fabric.host_kill(host);
  }
}

void Simulation::fault_start(const Fault& fault) {
  const auto h = static_cast<size_t>(fault.host);
  control::Host& host = *hosts_[h];
  const int member = member_of(fault);
  group::FakeNic& nic = host.world.nic(member);
  say("FAULT %s: %c/%d", to_string(fault).c_str(), kFaultNames[h], member);
  const auto until =
      fault.lasts.count() == 0 ? VirtualTime::Clock::time_point::max() : time_.now() + fault.lasts;
  if (breaks_channel(fault.what)) {
    for (Pair& pair : pairs_) pair.rounds.channel_disturbed(until);
  } else if (fault.what != What::kDrained) {
    for (Pair& pair : pairs_) pair.rounds.disturbed(until);
  }
  switch (fault.what) {
    case What::kPortDown:
    case What::kScare:
      if (dead_[h][member]) break;
      told_down_[h][member] = true;
      if (fault.what == What::kPortDown) nic.port_up = false;
      host.device_says(member, IBV_EVENT_PORT_ERR);
      lasts(fault, [this, fault, member] { port_restore(fault.host, member); });
      break;
    case What::kPortSilent:
      nic.port_up = false;
      lasts(fault, [this, fault, member] { port_restore(fault.host, member); });
      break;
    case What::kBlock: {
      const int from = fault.flag ? 1 - fault.host : fault.host;
      const int peer =
          fault.member == Fault::kCurrent ? host.group->life.path.peer_member : fault.peer_member;
      const int a = fault.flag ? peer : member, b = fault.flag ? member : peer;
      nic_blocked(from, a, b, true);
      lasts(fault, [this, from, a, b] { nic_blocked(from, a, b, false); });
      break;
    }
    case What::kRails: {
      const auto block = [this, fault](bool blocked) {
        for (int rail = 0; rail < static_cast<int>(group::kMembersMax); rail++) {
          nic_blocked(fault.host, rail, rail, blocked);
          if (fault.flag) nic_blocked(1 - fault.host, rail, rail, blocked);
        }
      };
      block(true);
      lasts(fault, [block] { block(false); });
      break;
    }
    case What::kSlow:
      slow_ = milliseconds(6);
      lasts(fault, [this] { slow_ = {}; });
      break;
    case What::kCut:
      network_.cut();
      lasts(fault, [this] {
        if (network_.is_cut()) network_.restore();
      });
      break;
    case What::kReconnect:
      network_.cut();
      network_.restore();
      break;
    case What::kChannelLost:
      network_.lose_channels(&host.coordinator, fault.lasts);
      break;
    case What::kRefuse:
      nic.refuses = true;
      lasts(fault, [&nic] { nic.refuses = false; });
      break;
    case What::kDeviceDeath:
      dead_[h][member] = true;
      for (Pair& pair : pairs_) pair.judge.host_silent(fault.host);
      if (member == kDefault) hopeless(fault.host, true);
      nic.port_up = false;
      for (auto& [qpn, qp] : nic.qps) {
        qp->flushes = false;
        qp->modify_error = qp->query_error = EIO;
      }
      host.device_says(member, IBV_EVENT_DEVICE_FATAL);
      break;
    case What::kFenceFails:
      for (Pair& pair : pairs_) pair.judge.host_unfenced(fault.host);
      for (auto& [qpn, qp] : nic.qps) qp->modify_error = EINVAL;
      break;
    case What::kMute:
      for (Pair& pair : pairs_) pair.judge.host_silent(fault.host);
      for (auto& [qpn, qp] : nic.qps) qp->query_error = EINVAL;
      break;
    case What::kProcessDeath:
      host_gone(fault.host);
      network_.host_remove(host.coordinator, milliseconds(1 + fault.count));
      host.forget();
      break;
    case What::kClose:
      host_gone(fault.host);
      host.forget();
      break;
    case What::kTotalLoss:
      total_loss(fault.host);
      break;
    case What::kOutage:
      for (int m = 0; m < host.world.context.member_count; m++) outage(fault, m);
      break;
    case What::kDrained:
      drained(fault.host, member, true);
      lasts(fault, [this, fault, member] { drained(fault.host, member, false); });
      break;
    case What::kCount:
      break;
  }
}

}  // namespace shift::sim

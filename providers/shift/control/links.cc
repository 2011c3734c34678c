// Addresses of the members, and the network devices that hold them.
#include <algorithm>

#include "control/coordinator.h"
#include "util/log.h"

namespace shift::control {

using fsm::Event;
using group::Context;
using group::Detector;
using group::Group;
using std::chrono::milliseconds;

namespace {

// The kernel changes its GID table some time after it has told of an address.
constexpr milliseconds kAddressPauses[] = {milliseconds(10), milliseconds(1000)};

}  // namespace

// Reads the GID table anew, once for all QPs. What it held before and does not hold any more, or
// elsewhere: a QP names its own address by the place in the table.
std::vector<wire::Gid> Coordinator::addresses_read(Context* context, int member) {
  auto& known = addresses_[context][member];
  const auto before = std::exchange(known, group::port_addresses(context->members[member].real, 1));
  context->members[member].gids.clear();
  const auto& names = names_[context][member] = group::port_names(context->members[member].real, 1);
  for (group::PortAddress& address : known) {
    context->members[member].gids.push_back(address.gid);
    const auto ip = address.gid.ipv4();
    if (ip) {
      net_->add_address(*ip);
      std::vector<wire::Gid> gids;
      for (const group::PortName& name : names)
        if (name.address == address.gid) gids.push_back(name.gid);
      net_->name_address(*ip, std::move(gids));
    }
    // The number of a device may be that of another one in our network namespace.
    const bool ours = ip && links_host_ && links_host_->has_address(address.ifindex, *ip);
    if (!ours) address.ifindex = 0;
  }
  links_forget();
  std::vector<wire::Gid> gone;
  for (const group::PortAddress& old : before) {
    const bool stays = std::ranges::any_of(known, [&](const group::PortAddress& now) {
      return now.gid == old.gid && now.index == old.index;
    });
    if (stays) continue;
    gone.push_back(old.gid);
    if (!std::ranges::count(context->members[member].gids, old.gid))
      net_->name_address(*old.gid.ipv4(), {});
  }
  return gone;
}

// The address by which the application's GID is reached over IP; all zeros when there is none.
wire::Gid Coordinator::address_of(const Group& group) const {
  return address_of(group.context, group.life.ends.local.gid);
}

wire::Gid Coordinator::address_of(const Context* context, const wire::Gid& local) const {
  if (local.ipv4()) return local;
  const auto found = names_.find(context);
  if (found == names_.end()) return {};
  for (const group::PortName& name : found->second[group::kDefault])
    if (name.gid == local) return name.address;
  return {};
}

bool Coordinator::is_on(const Context* context, int member, int ifindex) const {
  const auto found = addresses_.find(context);
  return found != addresses_.end() &&
         std::ranges::any_of(found->second[member], [&](const group::PortAddress& address) {
           return address.ifindex == ifindex;
         });
}

// A member whose devices are not known has to be taken at its port's word.
bool Coordinator::has_carrier(const Context* context, int member) const {
  bool known = false;
  for (const group::PortAddress& address : addresses_.at(context)[member]) {
    if (address.ifindex == 0) continue;
    if (!carrierless_.contains(address.ifindex)) return true;
    known = true;
  }
  return !known;
}

void Coordinator::link_state(int ifindex, bool up) {
  gone_.erase(ifindex);  // it came back from another network namespace
  const bool changed = up ? carrierless_.erase(ifindex) != 0 : carrierless_.insert(ifindex).second;
  if (!changed) return;
  for (Context* context : contexts_) {
    for (int member = 0; member < context->member_count; member++) {
      if (is_on(context, member, ifindex)) carrier_changed(context, member, ifindex);
    }
  }
}

void Coordinator::link_gone(int ifindex) {
  link_state(ifindex, false);
  gone_.insert(ifindex);
  links_forget();
}

// A host that starts and ends containers deletes devices all the time.
void Coordinator::links_forget() {
  std::erase_if(gone_, [this](int ifindex) {
    for (const Context* context : contexts_) {
      for (int member = 0; member < context->member_count; member++) {
        if (is_on(context, member, ifindex)) return false;
      }
    }
    carrierless_.erase(ifindex);
    return true;
  });
}

void Coordinator::carrier_set(Context* context, int member) {
  const auto bit = static_cast<uint8_t>(1u << member);
  if (has_carrier(context, member)) {
    linkless_[context] &= static_cast<uint8_t>(~bit);
  } else {
    linkless_[context] |= bit;
  }
}

// A NIC may have several network devices (VLANs): it is of use while one of them has a carrier.
void Coordinator::carrier_changed(Context* context, int member, int ifindex) {
  const auto bit = static_cast<uint8_t>(1u << member);
  const uint8_t before = members_up(context);
  const bool up = !carrierless_.contains(ifindex);
  SHIFT_EVENT("link_event", {{"device", context->name(member)}, {"ifindex", ifindex}, {"up", up}});
  carrier_set(context, member);
  const uint8_t after = members_up(context);
  if ((before & ~after & bit) != 0) {
    return member_lost(context, member, {"no carrier", Detector::kLink});
  }
  if ((after & ~before & bit) != 0) return member_back(context, member);
  // What the port event has told already is no news.
  if (up || (after & bit) == 0) return;
  const auto addresses = addresses_[context][member];
  for (const group::PortAddress& address : addresses) {
    if (address.ifindex != ifindex) continue;
    leave_address(context, member, address.gid, {"no carrier", Detector::kLink});
    for (const group::PortName& name : names_[context][member])
      if (name.address == address.gid)
        leave_address(context, member, name.gid, {"no carrier", Detector::kLink});
  }
}

// Groups whose QP on the member uses that address leave it.
void Coordinator::leave_address(Context* context, int member, const wire::Gid& gid,
                                group::Cause cause) {
  for (auto& [serial, binding] : bindings_) {
    Group& group = *binding->group;
    if (group.context != context || group.life.path.member != member) continue;
    const auto& qp = binding->qps[member];
    if ((qp.connected ? qp.address.gid : group.life.ends.local.gid) != gid) continue;
    feed(*binding, Event::kPathFault, cause);
  }
}

void Coordinator::address_changed(int ifindex) {
  for (Context* context : contexts_) {
    for (int member = 0; member < context->member_count; member++) {
      // A member without addresses may get its first one on any device.
      const bool has_any = !context->members[member].gids.empty();
      if (has_any && !is_on(context, member, ifindex)) continue;
      gids_changed(context, member);
      for (const milliseconds pause : kAddressPauses) {
        control_.timer_start(pause, [this, context, member] {
          if (std::ranges::find(contexts_, context) != contexts_.end()) {
            gids_changed(context, member);
          }
        });
      }
    }
  }
}

// A spare that would send from an address that is not there: the leader makes its connection again.
void Coordinator::spare_lost(Binding& binding, int member) {
  Group& group = *binding.group;
  auto& qp = binding.qps[member];
  qp.connected = false;
  if (group.life.control.is_leader) {
    binding.book.ready_drop(qp.path);  // members_up_changed() tends to it
  } else if (binding.channel != nullptr) {
    binding.channel->send(wire::Ready{group.life.ends.local, group.life.ends.remote, qp.path,
                                      qp.generation, wire::Ready::Kind::kBroken});
  }
}

// An address that is gone takes its paths along; one that came back may bring some.
void Coordinator::gids_changed(Context* context, int member) {
  const auto gids_before = context->members[member].gids;
  const bool had_carrier = has_carrier(context, member);
  const std::vector<wire::Gid> gone = addresses_read(context, member);
  const bool carrier_differs = has_carrier(context, member) != had_carrier;
  carrier_set(context, member);
  if (gone.empty() && context->members[member].gids == gids_before && !carrier_differs) return;
  SHIFT_EVENT("addresses", {{"device", context->name(member)},
                            {"count", context->members[member].gids.size()},
                            {"gone", gone.size()}});
  for (auto& [serial, binding] : bindings_) {
    Group& group = *binding->group;
    if (group.context != context || group.life.path.member == member) continue;
    auto& qp = binding->qps[member];
    if (qp.connected && std::ranges::find(gone, qp.address.gid) != gone.end()) {
      spare_lost(*binding, member);
    }
  }
  for (const wire::Gid& gid : gone) {
    leave_address(context, member, gid, {"the NIC's address is gone", Detector::kAddress});
  }
  // The control channel shall use the new address, too.
  for (auto& [serial, binding] : bindings_) {
    if (binding->group->context != context || !binding->peer_proven) continue;
    send_bind(*binding);
    channel_widen(*binding);
  }
  members_up_changed(context);
}

}  // namespace shift::control

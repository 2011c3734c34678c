#include "control/nic_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "group/command_threads.h"
#include "group/context.h"
#include "util/log.h"

namespace shift::control {

using group::Context;
using group::Detector;
using std::chrono::milliseconds;

namespace {

// The pauses before the GID table is read again: the kernel changes it some time after it has told
// of an address.
constexpr milliseconds kAddressPauses[] = {milliseconds(10), milliseconds(1000)};

bool holds(const auto& nic, int ifindex) {
  return std::ranges::any_of(
      nic.addresses, [&](const group::PortAddress& address) { return address.ifindex == ifindex; });
}

uint8_t bit_of(int member) {
  return static_cast<uint8_t>(1u << member);
}

}  // namespace

NicWatch::Watched* NicWatch::find(const Context* context) const {
  const auto found = std::ranges::find_if(
      watched_, [context](const auto& watched) { return watched->context == context; });
  return found == watched_.end() ? nullptr : found->get();
}

void NicWatch::context_add(Context* context, const group::PerMember<bool>& ports_up) {
  watched_.push_back(std::make_unique<Watched>(Watched{context, {}}));
  Watched& watched = *watched_.back();
  for (int m = 0; m < context->member_count; m++) {
    watched.nics[m].port_up = ports_up[m];
    context->members[m].port_down = !watched.nics[m].port_up;
  }
  for (int m = 0; m < context->member_count; m++) {
    (void)addresses_read(watched, m);
    Nic& nic = watched.nics[m];
    nic.linkless = !has_carrier(nic);
  }
  std::vector<wire::Gid> remembered;
  for (const ibv_gid_entry& entry : context->remembered_gids)
    remembered.push_back(wire::Gid::from_verbs(entry.gid));
  if (!remembered.empty()) net_->claim_gids(remembered);
}

void NicWatch::context_forget(const Context* context) {
  std::erase_if(watched_, [context](const auto& watched) { return watched->context == context; });
  links_forget();
}

uint8_t NicWatch::up_of(const Watched& watched) {
  uint8_t up = 0;
  for (int m = 0; m < watched.context->member_count; m++) {
    const Nic& nic = watched.nics[m];
    if (nic.port_up && !nic.linkless && !nic.late) up |= bit_of(m);
  }
  return up;
}

uint8_t NicWatch::late(const Context* context) const {
  const Watched* watched = find(context);
  uint8_t late = 0;
  for (int m = 0; watched != nullptr && m < context->member_count; m++) {
    if (watched->nics[m].late) late |= bit_of(m);
  }
  return late;
}

uint8_t NicWatch::up(const Context* context) const {
  const Watched* watched = find(context);
  return watched == nullptr ? 0 : up_of(*watched);
}

wire::Gid NicWatch::address_of(const Context* context, const wire::Gid& local) const {
  if (local.ipv4()) return local;
  const Watched* watched = find(context);
  if (watched == nullptr) return {};
  for (const group::PortName& name : watched->nics[group::kDefault].names)
    if (name.gid == local) return name.address;
  return {};
}

std::vector<wire::Gid> NicWatch::addresses_of(const group::Group& group) const {
  std::vector<wire::Gid> addresses{address_of(group)};
  for (int m = 1; m < group.context->member_count; m++) {
    addresses.push_back(address_of_member(group, m));
  }
  return addresses;
}

std::vector<uint32_t> NicWatch::addresses_up(const Context* context) const {
  std::vector<uint32_t> up;
  const Watched* watched = find(context);
  for (int m = 0; watched != nullptr && m < context->member_count; m++) {
    const Nic& nic = watched->nics[m];
    if ((up_of(*watched) & bit_of(m)) == 0 || nic.addresses.empty()) continue;
    if (const auto ip = nic.addresses.front().gid.ipv4()) up.push_back(*ip);
  }
  return up;
}

HostAddress NicWatch::host_address(const group::PortAddress& address) const {
  HostAddress host{.ip_be = address.gid.ipv4().value_or(0), .mask_be = address.mask_be};
  if (links_ && address.ifindex != 0) host.vlan = links_->vlan_of(address.ifindex);
  return host;
}

wire::Gid NicWatch::address_of_member(const group::Group& group, int member,
                                      const wire::Gid& peer) const {
  const wire::Gid own = address_of(group);
  if (member == group::kDefault && own != wire::Gid{}) return own;
  const Watched* watched = find(group.context);
  if (watched == nullptr || watched->nics[member].addresses.empty()) return {};
  HostAddress application{.ip_be = own.ipv4().value_or(0)};
  for (const group::PortAddress& address : watched->nics[group::kDefault].addresses)
    if (address.gid == own) application = host_address(address);
  const auto& addresses = watched->nics[member].addresses;
  std::vector<HostAddress> choice;
  for (const group::PortAddress& address : addresses) choice.push_back(host_address(address));
  return addresses[address_choose(choice, application, peer.ipv4())].gid;
}

bool NicWatch::commands_look() {
  bool is_busy = false;
  for (const auto& watched : watched_) {
    Context* context = watched->context;
    for (int m = 0; m < context->member_count; m++) {
      Nic& nic = watched->nics[m];
      const bool late = group::is_late(*context, m);
      is_busy |= late || group::is_busy(*context, m);
      if (late == std::exchange(nic.late, late)) continue;
      SHIFT_EVENT("commands", {{"device", context->name(m)}, {"late", late}});
      if (late) {
        sink_.nic_late(context, m);
      } else if ((up_of(*watched) & bit_of(m)) != 0) {
        sink_.nic_back(context, m);
      }
    }
  }
  return is_busy;
}

// ---- what devices say

void NicWatch::device_died(Context* context, int member) {
  port_lost(context, member, {"device fatal", Detector::kDevice});
}

void NicWatch::port_down(Context* context, int member) {
  port_lost(context, member, {"port down", Detector::kPort});
}

void NicWatch::port_lost(Context* context, int member, group::Cause cause) {
  if (Watched* watched = find(context)) {
    watched->nics[member].port_up = false;
    context->members[member].port_down = true;
  }
  sink_.nic_lost(context, member, cause);
}

void NicWatch::port_up(Context* context, int member) {
  Watched* watched = find(context);
  if (watched == nullptr) return;
  Nic& nic = watched->nics[member];
  // In a context that saw its device die, the device stays dead, whatever its port does.
  if (context->members[member].dead || nic.port_up) return;
  nic.port_up = true;
  context->members[member].port_down = false;
  if (!nic.linkless && !nic.late) sink_.nic_back(context, member);
}

// An address that is gone takes its paths along; an address that came back may bring some.
void NicWatch::gids_changed(Context* context, int member) {
  Watched* watched = find(context);
  if (watched == nullptr) return;
  const auto m = static_cast<size_t>(member);
  Nic& nic = watched->nics[m];
  const auto gids_before = context->members[m].gids;
  const bool had_carrier = has_carrier(nic);
  const std::vector<wire::Gid> gone = addresses_read(*watched, member);
  const bool carrier_stays = has_carrier(nic) == had_carrier;
  nic.linkless = !has_carrier(nic);
  if (gone.empty() && context->members[m].gids == gids_before && carrier_stays) return;
  SHIFT_EVENT("addresses", {{"device", context->name(member)},
                            {"count", context->members[m].gids.size()},
                            {"gone", gone.size()}});
  sink_.addresses_changed(context, member, gone);
}

// Reads the GID table anew, once for all QPs. Returns the GIDs that it held before and does not
// hold any more, or holds at another place: a QP names its own address by the place in the table.
std::vector<wire::Gid> NicWatch::addresses_read(Watched& watched, int member) {
  const auto m = static_cast<size_t>(member);
  Context* context = watched.context;
  Nic& nic = watched.nics[m];
  if (context->members[m].is_deputy) return {};  // another member's addresses
  const auto before =
      std::exchange(nic.addresses, group::port_addresses(context->members[m].real, 1));
  nic.names = group::port_names(context->members[m].real, 1);
  context->members[m].gids.clear();
  for (group::PortAddress& address : nic.addresses) {
    context->members[m].gids.push_back(address.gid);
    const auto ip = address.gid.ipv4();
    if (ip) {
      net_->add_address(*ip);
      std::vector<wire::Gid> gids;
      for (const group::PortName& name : nic.names)
        if (name.address == address.gid) gids.push_back(name.gid);
      net_->name_address(*ip, std::move(gids));
    }
    // A device of another network namespace may have the same number as a device in this one.
    const auto mask = ip && links_ ? links_->mask_of(address.ifindex, *ip) : std::nullopt;
    if (!mask) address.ifindex = 0;
    address.mask_be = mask.value_or(0);
  }
  links_forget();
  std::vector<wire::Gid> gone;
  for (const group::PortAddress& old : before) {
    const bool stays = std::ranges::any_of(nic.addresses, [&](const group::PortAddress& now) {
      return now.gid == old.gid && now.index == old.index;
    });
    if (stays) continue;
    gone.push_back(old.gid);
    if (!std::ranges::count(context->members[m].gids, old.gid))
      net_->name_address(*old.gid.ipv4(), {});
  }
  return gone;
}

// ---- what the kernel says of network devices

// If no device of a member is known, the word of the member's port has to do.
bool NicWatch::has_carrier(const Nic& nic) const {
  bool known = false;
  for (const group::PortAddress& address : nic.addresses) {
    if (address.ifindex == 0) continue;
    if (!carrierless_.contains(address.ifindex)) return true;
    known = true;
  }
  return !known;
}

void NicWatch::link_state(int ifindex, bool up) {
  gone_.erase(ifindex);  // the device came back from another network namespace
  const bool changed = up ? carrierless_.erase(ifindex) != 0 : carrierless_.insert(ifindex).second;
  if (!changed) return;
  for (const auto& watched : watched_) {
    for (int member = 0; member < watched->context->member_count; member++) {
      if (holds(watched->nics[member], ifindex)) {
        carrier_changed(*watched, member, ifindex);
      }
    }
  }
}

void NicWatch::link_gone(int ifindex) {
  link_state(ifindex, false);
  gone_.insert(ifindex);
  links_forget();
}

// Forgets deleted devices that hold no address of a NIC: a host that starts and ends containers
// deletes devices all the time.
void NicWatch::links_forget() {
  std::erase_if(gone_, [this](int ifindex) {
    for (const auto& watched : watched_) {
      for (const Nic& nic : watched->nics) {
        if (holds(nic, ifindex)) return false;
      }
    }
    carrierless_.erase(ifindex);
    return true;
  });
}

// A NIC may have several network devices (VLANs): it is of use while one of them has a carrier.
void NicWatch::carrier_changed(Watched& watched, int member, int ifindex) {
  Context* context = watched.context;
  Nic& nic = watched.nics[member];
  const uint8_t before = up_of(watched);
  const bool up = !carrierless_.contains(ifindex);
  SHIFT_EVENT("link_event", {{"device", context->name(member)}, {"ifindex", ifindex}, {"up", up}});
  nic.linkless = !has_carrier(nic);
  const uint8_t after = up_of(watched), bit = bit_of(member);
  if ((before & ~after & bit) != 0) {
    return sink_.nic_lost(context, member, {"no carrier", Detector::kLink});
  }
  if ((after & ~before & bit) != 0) return sink_.nic_back(context, member);
  // If the member was down already, the port event has told of it.
  if (up || (after & bit) == 0) return;
  const auto addresses = nic.addresses;
  const auto names = nic.names;
  for (const group::PortAddress& address : addresses) {
    if (address.ifindex != ifindex) continue;
    sink_.address_lost(context, member, address.gid, {"no carrier", Detector::kLink});
    for (const group::PortName& name : names)
      if (name.address == address.gid)
        sink_.address_lost(context, member, name.gid, {"no carrier", Detector::kLink});
  }
}

void NicWatch::address_changed(int ifindex) {
  for (const auto& watched : watched_) {
    Context* context = watched->context;
    for (int member = 0; member < context->member_count; member++) {
      const auto m = static_cast<size_t>(member);
      // A member without addresses may get its first address on any device.
      if (!context->members[m].gids.empty() && !holds(watched->nics[m], ifindex)) continue;
      gids_changed(context, member);
      for (const milliseconds pause : kAddressPauses) {
        loop_.timer_start(loop_.now() + pause,
                          [this, context, member] { gids_changed(context, member); });
      }
    }
  }
}

}  // namespace shift::control

#include "group/port.h"

#include <algorithm>
#include <mutex>

#include "group/context.h"
#include "group/group.h"
#include "group/stock.h"
#include "util/config.h"
#include "util/planted.h"

namespace shift::group {
std::vector<ibv_gid_entry> gid_entries(ibv_context* real) {
  std::vector<ibv_gid_entry> entries(256);
  const ssize_t got =
      stock->query_gid_table(real, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
  entries.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return entries;
}

std::vector<PortAddress> port_addresses(ibv_context* real, uint8_t port) {
  std::vector<PortAddress> addresses;
  for (const ibv_gid_entry& entry : gid_entries(real)) {
    if (entry.port_num != port || entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    const auto gid = wire::Gid::from_verbs(entry.gid);
    if (gid.ipv4())
      addresses.push_back({gid, entry.gid_index, static_cast<int>(entry.ndev_ifindex)});
  }
  return addresses;
}

std::vector<PortName> port_names(ibv_context* real, uint8_t port) {
  const auto entries = gid_entries(real);
  const auto addresses = port_addresses(real, port);
  std::vector<PortName> names;
  for (const ibv_gid_entry& entry : entries) {
    const auto gid = wire::Gid::from_verbs(entry.gid);
    const bool is_roce =
        entry.gid_type == IBV_GID_TYPE_ROCE_V1 || entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    if (entry.port_num != port || !is_roce || gid.ipv4() || gid == wire::Gid{}) continue;
    for (const PortAddress& address : addresses) {
      if (address.ifindex != static_cast<int>(entry.ndev_ifindex)) continue;
      // Most GIDs are there twice, once for each version of RoCE.
      const bool known = std::ranges::any_of(names, [&](const PortName& name) {
        return name.gid == gid && name.address == address.gid;
      });
      if (!known) names.push_back({gid, address.gid});
    }
  }
  return names;
}

std::optional<ibv_gid_entry> gid_at(ibv_context* real, uint8_t port, uint32_t index) {
  ibv_gid_entry entry{};
  if (stock->query_gid_ex(real, port, index, &entry, 0, sizeof entry) != 0) return std::nullopt;
  return entry;
}

bool is_backed(const Context& context) {
  if (!config().born_masked) return false;
  for (int member = kDefault + 1; member < context.member_count; member++) {
    const auto& other = context.members[member];
    if (!other.dead && !other.port_down) return true;
  }
  return false;
}

namespace {

// An address that is now another NIC's, or stands elsewhere in the table, is not shown where it
// was.
bool is_elsewhere(const Context& context, const wire::Gid& gid) {
  if (SHIFT_PLANT(gid_of_another_nic_shown)) return false;
  for (int member = 0; member < context.member_count; member++) {
    const auto& one = context.members[member];
    if (one.dead) continue;
    for (const ibv_gid_entry& entry : gid_entries(one.real))
      if (wire::Gid::from_verbs(entry.gid) == gid) return true;
  }
  return false;
}

}  // namespace

std::optional<ibv_gid_entry> shown_gid(Context& context, uint32_t port, uint32_t index) {
  const Context::Member& own = context.members[kDefault];
  if (!own.is_deputy) {
    const auto real = gid_at(own.real, static_cast<uint8_t>(port), index);
    if (real && wire::Gid::from_verbs(real->gid) != wire::Gid{}) return real;
  }
  if (const auto used = gid_in_use(context, port, index)) {
    if (const auto shown = context.shown_gids.find(port, index, *used)) return shown;
  }
  if (!is_backed(context)) return std::nullopt;
  for (const ibv_gid_entry& entry : context.remembered_gids) {
    if (entry.port_num != port || entry.gid_index != index) continue;
    if (!is_elsewhere(context, wire::Gid::from_verbs(entry.gid))) return entry;
  }
  return std::nullopt;
}

int gid_index_of(ibv_context* real, uint8_t port, const wire::Gid& gid, uint32_t type,
                 uint32_t likely) {
  // It takes a while to read the whole table, and thousands of QPs would each do it.
  const auto there = gid_at(real, port, likely);
  if (there && there->gid_type == type && wire::Gid::from_verbs(there->gid) == gid) {
    return static_cast<int>(likely);
  }
  for (const ibv_gid_entry& entry : gid_entries(real)) {
    if (entry.port_num == port && entry.gid_type == type &&
        wire::Gid::from_verbs(entry.gid) == gid) {
      return static_cast<int>(entry.gid_index);
    }
  }
  return -1;
}

namespace {

std::optional<GidInUse> gid_used_by(Group& group) {
  std::lock_guard lock(group.attr_mutex);
  const auto& asked = group.life.asked;
  const wire::Gid& gid = group.life.ends.local.gid;
  if ((asked.mask & IBV_QP_AV) == 0 || gid == wire::Gid{}) return std::nullopt;
  return GidInUse{asked.attr.port_num, asked.attr.ah_attr.grh.sgid_index, gid};
}

}  // namespace

std::vector<GidInUse> gids_in_use(Context& context) {
  std::vector<GidInUse> all;
  std::lock_guard lock(context.mutex);
  for (Group* group : context.groups) {
    if (const auto used = gid_used_by(*group)) all.push_back(*used);
  }
  return all;
}

std::optional<wire::Gid> gid_in_use(Context& context, uint32_t port, uint32_t index) {
  std::lock_guard lock(context.mutex);
  for (Group* group : context.groups) {
    const auto used = gid_used_by(*group);
    if (used && used->port == port && used->index == index) return used->gid;
  }
  return std::nullopt;
}

PerMember<bool> ports_up(const Context& context) {
  PerMember<bool> up;
  for (int m = 0; m < context.member_count; m++) up[m] = member_port_is_up(context, m);
  return up;
}

bool member_port_is_up(const Context& context, int member) {
  ibv_context* real = context.members[member].real;
  ibv_port_attr attr{};
  return !context.members[member].dead &&
         verbs_get_ctx(real)->query_port(real, kPortNumber, &attr, sizeof attr) == 0 &&
         attr.state == IBV_PORT_ACTIVE;
}

}  // namespace shift::group

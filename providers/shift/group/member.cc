#include "group/member.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "group/below.h"
#include "group/context.h"
#include "group/domain.h"
#include "group/group.h"
#include "group/region.h"
#include "group/shared_queue.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::group {
namespace {

constexpr uint8_t kPort = 1;
constexpr uint8_t kHopLimit = 64;

std::vector<ibv_gid_entry> gid_entries(ibv_context* real) {
  std::vector<ibv_gid_entry> entries(256);
  const ssize_t got =
      below->query_gid_table(real, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
  entries.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return entries;
}

// SplitMix64: any seed is a good one, and the state is a counter, which threads can share.
uint64_t draw(Context& context) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  uint64_t z = context.psn_draws.fetch_add(kStep, std::memory_order_relaxed) + kStep;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// A quarter of the PSN space ahead of the last connection, give or take: whatever of that one is
// still under way, at most half a space of packets, fits nowhere in the new one.
uint32_t next_psn(Context& context, uint32_t last) {
  return (last + (1u << 22) + static_cast<uint32_t>(draw(context) & 0xfffff)) & 0xffffff;
}

uint32_t mtu_bytes(ibv_mtu mtu) {
  return 128u << mtu;
}

int to_state(ibv_qp* real, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return below->modify_qp(real, &attr, IBV_QP_STATE);
}

int to_init(Group& group, ibv_qp* real) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPort;
  {
    std::lock_guard lock(group.attr_mutex);
    // Our own empty WRITEs must be let in: probes, drain markers, stand-ins. They name no memory,
    // and regions keep the rights that the application gave them.
    attr.qp_access_flags = group.life.asked.attr.qp_access_flags | IBV_ACCESS_REMOTE_WRITE;
  }
  return below->modify_qp(real, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_rtr(Group& group, int member, const wire::QpAddress& own, const wire::QpAddress& peer) {
  ibv_context* context = group.context->members[member].real;
  uint32_t& known_index = group.context->members[member].gid_index;
  ibv_qp_attr attr{};
  uint32_t type = IBV_GID_TYPE_ROCE_V2;
  // The application's own path is made again as it made it: the peer's end is, too.
  bool is_original;
  {
    std::lock_guard lock(group.attr_mutex);
    attr = group.life.asked.attr;
    is_original = member == kDefault && own.gid == group.life.ends.local.gid &&
                  peer.gid == group.life.ends.remote.gid;
    if (is_original) type = group.life.ends.gid_type;
  }
  const uint32_t likely = is_original ? attr.ah_attr.grh.sgid_index : known_index;
  const int index = gid_index_of(context, kPort, own.gid, type, likely);
  if (index < 0) return EADDRNOTAVAIL;
  if (!is_original) known_index = static_cast<uint32_t>(index);
  const uint8_t sl = attr.ah_attr.sl;
  const ibv_global_route route = attr.ah_attr.grh;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = std::min(attr.path_mtu, static_cast<ibv_mtu>(peer.mtu));
  {
    std::lock_guard lock(group.attr_mutex);
    group.life.members[member].path_mtu = mtu_bytes(attr.path_mtu);
  }
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.ah_attr = {};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = kPort;
  attr.ah_attr.sl = sl;
  attr.ah_attr.grh = route;
  attr.ah_attr.grh.dgid = peer.gid.to_verbs();
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
  // What is enough on the link need not be between addresses that may be routed.
  if (!is_original && !group.life.ends.local.gid.ipv4())
    attr.ah_attr.grh.hop_limit = std::max(route.hop_limit, kHopLimit);
  return below->modify_qp(group.real[member], &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

void twin_cq_create(CompletionQueue& cq, int member) {
  Context& context = *cq.context;
  ibv_comp_channel* channel =
      cq.channel != nullptr ? cq.channel->real[member] : context.members[member].watch;
  if (cq.channel != nullptr && channel == nullptr) {
    // A program that waits for events would wait for ever.
    SHIFT_WARN_LIMITED("%s: no completion channel on %s, and no CQ; its QPs cannot move there",
                       context.device->dev.name, context.name(member));
    return;
  }
  ibv_cq* real =
      below->create_cq(context.members[member].real, cq.real[kDefault]->cqe, &cq, channel, 0);
  if (real == nullptr) {
    SHIFT_WARN_LIMITED("%s: no CQ on %s: errno %d; its QPs cannot move there",
                       context.device->dev.name, context.name(member), errno);
    return;
  }
  std::lock_guard lock(cq.mutex);
  cq.real[member] = real;
}

ibv_mr* region_make(const MemoryRegion& region, ibv_pd* real) {
  switch (region.kind) {
    case MemoryRegion::Kind::kMemory:
      return below->reg_mr_iova2(real, region.mr.addr, region.mr.length, region.iova,
                                 region.access);
    case MemoryRegion::Kind::kDmabuf:
      return below->reg_dmabuf_mr(real, region.offset, region.mr.length, region.iova,
                                  region.fd.get(), static_cast<int>(region.access));
    case MemoryRegion::Kind::kNull:
      if (const auto* verbs = verbs_get_ctx_op(real->context, alloc_null_mr)) {
        return verbs->alloc_null_mr(real);
      }
      break;
    case MemoryRegion::Kind::kOnDefault:
      break;
  }
  errno = EOPNOTSUPP;
  return nullptr;
}

void twin_region_register(MemoryRegion& region, ProtectionDomain& pd, int member) {
  Context& context = *Context::from(pd.pd.context);
  {
    std::lock_guard lock(context.mutex);
    if (region.deregistered) return;
    region.members[member].twin = MemoryRegion::Twin::kRunning;
  }
  ibv_mr* real = nullptr;
  errno = ENODEV;
  if (pd.real[member] != nullptr) real = region_make(region, pd.real[member]);
  if (real == nullptr) {
    SHIFT_WARN_LIMITED(
        "%s: a region of %zu bytes cannot be registered on %s (errno %d): QPs that "
        "use it cannot move there",
        context.device->dev.name, region.mr.length, context.name(member), errno);
  }
  std::lock_guard lock(context.mutex);
  region.members[member].real = real;
  region.members[member].twin =
      real != nullptr ? MemoryRegion::Twin::kReady : MemoryRegion::Twin::kFailed;
  context.changed.notify_all();
}

}  // namespace

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
      // Most are there twice, for either version of RoCE.
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
  if (below->query_gid_ex(real, port, index, &entry, 0, sizeof entry) != 0) return std::nullopt;
  return entry;
}

int gid_index_of(ibv_context* real, uint8_t port, const wire::Gid& gid, uint32_t type,
                 uint32_t likely) {
  // The whole table takes a while to read, which thousands of QPs would each do.
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

std::optional<wire::Gid> gid_in_use(Context& context, uint32_t port, uint32_t index) {
  std::lock_guard lock(context.mutex);
  for (Group* group : context.groups) {
    std::lock_guard attr_lock(group->attr_mutex);
    const bool is_here = (group->life.asked.mask & IBV_QP_AV) &&
                         group->life.asked.attr.port_num == port &&
                         group->life.asked.attr.ah_attr.grh.sgid_index == index;
    if (is_here && group->life.ends.local.gid != wire::Gid{}) return group->life.ends.local.gid;
  }
  return std::nullopt;
}

bool member_port_is_up(const Context& context, int member) {
  ibv_context* real = context.members[member].real;
  ibv_port_attr attr{};
  return !context.members[member].dead &&
         verbs_get_ctx(real)->query_port(real, kPort, &attr, sizeof attr) == 0 &&
         attr.state == IBV_PORT_ACTIVE;
}

void twin_cqs_create(CompletionQueue& cq) {
  for (int member = kDefault + 1; member < cq.context->member_count; member++) {
    twin_cq_create(cq, member);
  }
}

void twin_cqs_destroy(CompletionQueue& cq) {
  for (int member = kDefault + 1; member < kMembersMax; member++) {
    ibv_cq* real;
    {
      std::lock_guard lock(cq.mutex);
      real = std::exchange(cq.real[member], nullptr);
    }
    if (real != nullptr && below->destroy_cq(real) != 0) {
      SHIFT_WARN_LIMITED("%s: a CQ on %s could not be destroyed", cq.context->device->dev.name,
                         cq.context->name(member));
    }
  }
}

void twin_regions_register(MemoryRegion& region, ProtectionDomain& pd) {
  const int members = Context::from(pd.pd.context)->member_count;
  for (int member = kDefault + 1; member < members; member++) {
    twin_region_register(region, pd, member);
  }
}

bool twin_regions_stop(MemoryRegion& region) {
  Context& context = *Context::from(region.mr.context);
  std::lock_guard lock(context.mutex);
  region.deregistered = true;
  context.changed.notify_all();  // who waits for its keys gets none
  return region.any_twin(MemoryRegion::Twin::kRunning);
}

void twin_regions_deregister(MemoryRegion& region) {
  for (int member = kDefault + 1; member < kMembersMax; member++) {
    ibv_mr* real = std::exchange(region.members[member].real, nullptr);
    if (real != nullptr) (void)below->dereg_mr(real);
  }
}

int member_qp_create(Group& group, int member) {
  if (group.real[member] != nullptr) return 0;
  Context& context = *group.context;
  if (group.send_cq->real[member] == nullptr || group.recv_cq->real[member] == nullptr ||
      group.pd->real[member] == nullptr) {
    return ENODEV;
  }
  ibv_qp_init_attr init{};
  init.qp_context = &group;
  init.send_cq = group.send_cq->real[member];
  init.recv_cq = group.recv_cq->real[member];
  init.cap = group.cap;
  if (group.srq != nullptr) {
    init.srq = group.srq->members[member].real;
    if (init.srq == nullptr) return ENODEV;
  }
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = group.sq_sig_all;
  ibv_qp* real = below->create_qp(group.pd->real[member], &init);
  if (real == nullptr) return errno;
  group.real[member] = real;
  std::lock_guard lock(context.mutex);
  context.members[member].qps.insert(real->qp_num, &group.counters);
  return 0;
}

int member_qp_address(Group& group, int member, const wire::Gid& gid, wire::QpAddress* own) {
  if (group.real[member] == nullptr) return ENODEV;
  own->gid = gid;
  own->qpn = group.real[member]->qp_num;
  std::lock_guard lock(group.attr_mutex);
  own->psn = next_psn(*group.context, group.life.members[member].last_psn.value_or(
                                          member == kDefault ? group.life.asked.attr.sq_psn : 0));
  group.life.members[member].last_psn = own->psn;
  own->mtu = static_cast<uint8_t>(group.life.asked.attr.path_mtu);
  return 0;
}

int member_qp_connect(Group& group, int member, const wire::QpAddress& own,
                      const wire::QpAddress& peer) {
  ibv_qp* real = group.real[member];
  if (real == nullptr) return ENODEV;
  // What lies on the member's shared receive queue from earlier must not be written into.
  if (group.srq != nullptr && !group.srq->cleanse(member)) return EAGAIN;
  std::lock_guard lock(group.modify_mutex);
  group.life.members[member].last_taken = false;
  group.life.members[member].can_send = false;
  group.life.members[member].own_packets = 0;
  if (int error = to_state(real, IBV_QPS_RESET)) return error;
  if (int error = to_init(group, real)) return error;
  if (int error = to_rtr(group, member, own, peer)) return error;
  return start_sending(group, member);
}

int member_qp_stop(Group& group, int member) {
  ibv_qp* real = group.real[member];
  if (const int error = to_state(real, IBV_QPS_RESET)) return error;
  if (to_init(group, real) == 0) (void)to_state(real, IBV_QPS_ERR);
  return 0;
}

void count_packets(Group& group) {
  SendQueue& send = group.send;
  std::lock_guard lock(group.attr_mutex);
  if (!group.exact || send.journal.head() != 0) return;  // too late: nothing is known any more
  send.journal.count_packets(mtu_bytes(group.life.asked.attr.path_mtu));
  const uint32_t psn = group.life.asked.attr.sq_psn & kPsnMask;
  // Not if the traffic has moved before it began; then the next round knows.
  const bool is_original =
      !group.life.members[kDefault].last_psn && group.life.path.member == kDefault;
  send.sent = {.known = is_original, .begin = psn, .psn = psn};
}

void twin_qps_destroy(Group& group) {
  for (int member = kDefault + 1; member < kMembersMax; member++) {
    ibv_qp* real = std::exchange(group.real[member], nullptr);
    if (real == nullptr) continue;
    {
      std::lock_guard lock(group.context->mutex);
      group.context->members[member].qps.erase(real->qp_num, &group.counters);
    }
    if (below->destroy_qp(real) != 0) {
      SHIFT_WARN_LIMITED("qp 0x%x: its QP on %s could not be destroyed", group.qpn(),
                         group.context->name(member));
    }
  }
}

}  // namespace shift::group

#include "group/backup.h"

#include <algorithm>
#include <cerrno>
#include <random>

#include "group/below.h"
#include "util/log.h"

namespace shift::group {
namespace {

constexpr uint8_t kPort = 1;

std::vector<ibv_gid_entry> gid_entries(ibv_context* real) {
  std::vector<ibv_gid_entry> entries(256);
  const ssize_t got =
      below->query_gid_table(real, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
  entries.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return entries;
}

uint32_t random_psn() {
  std::random_device device;
  return device() & 0xffffff;
}

// The application's flags, less what another NIC may not have.
unsigned backup_access(const MemoryRegion& region) {
  return region.access;
}

}  // namespace

std::vector<wire::Gid> ipv4_gids(ibv_context* real, uint8_t port) {
  std::vector<wire::Gid> gids;
  for (const ibv_gid_entry& entry : gid_entries(real)) {
    if (entry.port_num != port || entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    const auto gid = wire::Gid::from_verbs(entry.gid);
    if (gid.ipv4()) gids.push_back(gid);
  }
  return gids;
}

int gid_index_of(ibv_context* real, uint8_t port, const wire::Gid& gid) {
  for (const ibv_gid_entry& entry : gid_entries(real)) {
    if (entry.port_num == port && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        wire::Gid::from_verbs(entry.gid) == gid) {
      return static_cast<int>(entry.gid_index);
    }
  }
  return -1;
}

void backup_cq_create(CompletionQueue& cq) {
  Context& context = *cq.context;
  ibv_comp_channel* channel =
      cq.channel != nullptr ? cq.channel->real[kBackup] : context.watch[kBackup];
  ibv_cq* real = below->create_cq(context.real[kBackup], cq.real[kDefault]->cqe, &cq, channel, 0);
  if (real == nullptr) {
    SHIFT_WARN_LIMITED("%s: no backup CQ on %s: errno %d; its QPs stay unprotected",
                       context.device->dev.name, context.device->real[kBackup]->name, errno);
    return;
  }
  std::lock_guard lock(cq.mutex);
  cq.real[kBackup] = real;
}

void backup_cq_destroy(CompletionQueue& cq) {
  ibv_cq* real;
  {
    std::lock_guard lock(cq.mutex);
    real = std::exchange(cq.real[kBackup], nullptr);
  }
  if (real != nullptr && below->destroy_cq(real) != 0) {
    SHIFT_WARN_LIMITED("%s: a backup CQ could not be destroyed", cq.context->device->dev.name);
  }
}

void backup_region_register(MemoryRegion& region, ProtectionDomain& pd) {
  Context& context = *Context::from(pd.pd.context);
  {
    std::lock_guard lock(context.mutex);
    region.backup = MemoryRegion::Backup::kRunning;
  }
  ibv_mr* real = below->reg_mr_iova2(pd.real[kBackup], region.mr.addr, region.mr.length,
                                     region.iova, backup_access(region));
  if (real == nullptr) {
    SHIFT_WARN_LIMITED(
        "%s: a region of %zu bytes cannot be registered on %s (errno %d): QPs that "
        "use it cannot be moved",
        context.device->dev.name, region.mr.length, context.device->real[kBackup]->name, errno);
  }
  std::lock_guard lock(context.mutex);
  region.real[kBackup] = real;
  region.backup = real != nullptr ? MemoryRegion::Backup::kReady : MemoryRegion::Backup::kFailed;
  context.changed.notify_all();
}

void backup_region_deregister(MemoryRegion& region) {
  ibv_mr* real = std::exchange(region.real[kBackup], nullptr);
  if (real != nullptr) (void)below->dereg_mr(real);
}

int backup_qp_create(Group& group, BackupAddress* own) {
  Context& context = *group.context;
  if (group.send_cq->real[kBackup] == nullptr || group.recv_cq->real[kBackup] == nullptr) {
    return ENODEV;
  }
  if (group.real[kBackup] == nullptr) {
    ibv_qp_init_attr init{};
    init.qp_context = &group;
    init.send_cq = group.send_cq->real[kBackup];
    init.recv_cq = group.recv_cq->real[kBackup];
    init.cap = group.cap;
    init.qp_type = IBV_QPT_RC;
    init.sq_sig_all = group.sq_sig_all;
    ibv_qp* real = below->create_qp(group.pd->real[kBackup], &init);
    if (real == nullptr) return errno;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = kPort;
    {
      std::lock_guard lock(group.attr_mutex);
      attr.qp_access_flags = group.attr.qp_access_flags;
      own->mtu = group.attr.path_mtu;
    }
    const int error = below->modify_qp(
        real, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0) {
      (void)below->destroy_qp(real);
      return error;
    }
    group.real[kBackup] = real;
    std::lock_guard lock(context.mutex);
    context.qps[kBackup].insert(real->qp_num, &group.counters);
  }
  const auto gids = ipv4_gids(context.real[kBackup], kPort);
  if (gids.empty()) return EADDRNOTAVAIL;
  own->gid = gids.front();
  own->qpn = group.real[kBackup]->qp_num;
  own->psn = random_psn();
  {
    std::lock_guard lock(group.attr_mutex);
    group.backup_psn = own->psn;
  }
  return 0;
}

int backup_qp_connect(Group& group, const BackupAddress& own, const BackupAddress& peer) {
  Context& context = *group.context;
  const int index = gid_index_of(context.real[kBackup], kPort, own.gid);
  if (index < 0) return EADDRNOTAVAIL;
  ibv_qp_attr attr{};
  {
    std::lock_guard lock(group.attr_mutex);
    attr = group.attr;
  }
  const uint8_t sl = attr.ah_attr.sl;
  const ibv_global_route route = attr.ah_attr.grh;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = std::min(attr.path_mtu, peer.mtu);
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.ah_attr = {};
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = kPort;
  attr.ah_attr.sl = sl;
  attr.ah_attr.grh = route;
  attr.ah_attr.grh.dgid = peer.gid.to_verbs();
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
  const int error =
      below->modify_qp(group.real[kBackup], &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  return error != 0 ? error : backup_qp_start_sending(group, own);
}

int backup_qp_start_sending(Group& group, const BackupAddress& own) {
  ibv_qp_attr attr{};
  {
    std::lock_guard lock(group.attr_mutex);
    // Not before the application: its READ depth and retry counts are not known until then, and a
    // QP that it leaves in RTR stays there.
    if (!(group.attr_mask & IBV_QP_SQ_PSN)) return 0;
    attr = group.attr;
  }
  if (group.real[kBackup]->state != IBV_QPS_RTR) return 0;
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = own.psn;
  // The application's own patience, not shortened: there is no further member to turn to.
  return below->modify_qp(group.real[kBackup], &attr,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void backup_qp_destroy(Group& group) {
  ibv_qp* real = std::exchange(group.real[kBackup], nullptr);
  if (real == nullptr) return;
  {
    std::lock_guard lock(group.context->mutex);
    group.context->qps[kBackup].erase(real->qp_num, &group.counters);
  }
  if (below->destroy_qp(real) != 0) {
    SHIFT_WARN_LIMITED("qp 0x%x: the backup QP could not be destroyed", group.qpn());
  }
}

}  // namespace shift::group

// Making and connecting the backup twins of the application's objects. All of it runs on the worker
// thread, so that no verb of the application waits for it; the worker's queue is first in, first
// out, which is what keeps a twin's making, use and end in order.
#pragma once

#include <cstdint>

#include "group/objects.h"

namespace shift::group {

void backup_cq_create(CompletionQueue& cq);
void backup_cq_destroy(CompletionQueue& cq);
void backup_region_register(MemoryRegion& region, ProtectionDomain& pd);
void backup_region_deregister(MemoryRegion& region);

// Where the peer's backup QP is.
struct BackupAddress {
  wire::Gid gid;
  uint32_t qpn = 0;
  uint32_t psn = 0;
  ibv_mtu mtu = IBV_MTU_4096;
};

// Creates the backup QP, in INIT; fills *own. Errno on failure.
[[nodiscard]] int backup_qp_create(Group& group, BackupAddress* own);
// INIT -> RTR towards the peer's backup QP, and on to RTS if the application's QP is there.
[[nodiscard]] int backup_qp_connect(Group& group, const BackupAddress& own,
                                    const BackupAddress& peer);
// RTR -> RTS, once the application's QP has got there.
[[nodiscard]] int backup_qp_start_sending(Group& group, const BackupAddress& own);
void backup_qp_destroy(Group& group);

// The index of a GID by its value (indices change when an address flaps), -1 when it is gone.
int gid_index_of(ibv_context* real, uint8_t port, const wire::Gid& gid);

// GIDs of a real context's port that can carry RoCE v2 over IPv4, by value.
std::vector<wire::Gid> ipv4_gids(ibv_context* real, uint8_t port);

}  // namespace shift::group

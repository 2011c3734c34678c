// Connecting the layer's own QPs, which stand for no QP of the application.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "wire/names.h"

namespace shift::group {

// How such a QP is connected.
struct OwnQpLink {
  uint32_t peer_qpn = 0;
  wire::Gid peer_gid;
  int gid_index = 0;    // the place of the QP's own address
  unsigned access = 0;  // what the peer may do, in ibv_access_flags
  ibv_mtu mtu = IBV_MTU_1024;
  uint32_t sq_psn = 0, rq_psn = 0;
  uint8_t timeout = 11, retries = 3;
  bool sends = true;  // false: it only answers
};

void own_qp_to_state(ibv_qp* qp, ibv_qp_state state);
// Connects `qp` from any state. False: the NIC refused.
[[nodiscard]] bool own_qp_connect(ibv_qp* qp, const OwnQpLink& link);
// Connects `qp` to `peer`, which is on the same NIC, by the NIC's address `gid` at `gid_index`.
[[nodiscard]] bool own_qp_connect(ibv_qp* qp, const ibv_qp* peer, const wire::Gid& gid,
                                  int gid_index, unsigned access);

}  // namespace shift::group

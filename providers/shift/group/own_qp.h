// Connecting the layer's own QPs, which stand for no QP of the application, within one NIC.
#pragma once

#include <infiniband/verbs.h>

#include "wire/names.h"

namespace shift::group {

void own_qp_to_state(ibv_qp* qp, ibv_qp_state state);
// Connects `qp` to `peer`, from any state, by the NIC's address `gid` at `gid_index`. `access`:
// what the peer may do, in ibv_access_flags. False: the NIC refused.
[[nodiscard]] bool own_qp_connect(ibv_qp* qp, const ibv_qp* peer, const wire::Gid& gid,
                                  int gid_index, unsigned access);

}  // namespace shift::group

// The function that is told when a peer is gone.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

namespace shift::group {

// Told, on the control thread, of each QP that has left a path and whose peer has closed its own: a
// connection manager's word on it would have to come over the default NIC, from the address that it
// had in the beginning. Null: nobody.
inline constinit std::atomic<void (*)(ibv_qp*)> peer_gone{nullptr};

}  // namespace shift::group

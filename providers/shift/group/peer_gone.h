// The function that is called when a peer is gone.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>

namespace shift::group {

// Called on the control thread, with the QP of the application: when a group has left a path once
// and its peer has closed its QP, and when a group has failed. A connection manager would not learn
// of this by itself, because its messages go over the default NIC, from the address of the
// beginning. Null: no function is called.
inline constinit std::atomic<void (*)(ibv_qp*)> peer_gone{nullptr};

}  // namespace shift::group

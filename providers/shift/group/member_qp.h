// The steps on one member's QP of a group: making it, connecting it to the peer, starting and
// stopping it, and trying it. But where noted they run on the worker thread, so that no verb of the
// application waits for them.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "group/life.h"
#include "wire/messages.h"

namespace shift::group {

struct Group;

// Creates the member's QP unless there is one. Errno on failure.
[[nodiscard]] int member_qp_create(Group& group, int member);
// Where the peer can reach the member's QP, with a start PSN far from its last one (C8).
[[nodiscard]] int member_qp_address(Group& group, int member, const wire::Gid& gid,
                                    wire::QpAddress* own);
// RESET -> INIT -> RTR towards the peer's QP, and on to RTS if the application's QP is there.
[[nodiscard]] int member_qp_connect(Group& group, int member, const wire::QpAddress& own,
                                    const wire::QpAddress& peer);
// RTR -> RTS for a connected QP, once the application's has got there.
[[nodiscard]] int member_qp_start_sending(Group& group, int member);
// The same; the caller holds modify_mutex. On whichever thread.
[[nodiscard]] int start_sending(Group& group, int member);
// RESET, which ends all work on the QP and forgets it, and on to ERR, where it takes nothing. Errno
// if RESET is refused.
[[nodiscard]] int member_qp_stop(Group& group, int member);
// To ERR or RESET, whatever it was in. Errno; ENODEV: there is none. On any thread.
[[nodiscard]] int member_qp_to_state(Group& group, int member, ibv_qp_state state);

// The empty WRITE that tries a new connection of the member's QP. Control thread.
void member_qp_probe(Group& group, int member);
// Looks for its completion.
Probe member_qp_probe_look(Group& group, int member);
void member_qp_probe_forget(Group& group, int member);

// Whether the QP that carries the data has broken, and how long its NIC may go on for an
// acknowledgement. Nothing: the NIC does not say. Control thread.
struct QpHealth {
  bool is_broken;
  std::chrono::nanoseconds patience;  // 0: it never gives up
};
std::optional<QpHealth> committed_qp_health(Group& group);
// How long, at most, the NIC would have gone on for an acknowledgement on the stock library, by
// what the application asked for. 0: it has not, and cannot send yet.
std::chrono::nanoseconds asked_patience(Group& group);

// Giving up early is cheap when there is another path.
void bound_patience(ibv_qp_attr& attr);
// What an ibv_mtu stands for.
inline uint32_t mtu_bytes(ibv_mtu mtu) {
  return 128u << mtu;
}

}  // namespace shift::group

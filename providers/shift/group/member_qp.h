// The steps on one member's QP of a group: to make it, connect it to the peer, start, stop and
// probe it. They run on the command thread of the member's NIC, unless a comment says otherwise.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "group/life.h"
#include "wire/messages.h"

namespace shift::group {

struct Group;

// Creates the member's QP if there is none yet. Returns an errno on failure.
[[nodiscard]] int member_qp_create(Group& group, int member);
// Fills in `own`: where the peer can reach the member's QP, with a start PSN far from its last one
// (C8).
[[nodiscard]] int member_qp_address(Group& group, int member, const wire::Gid& gid,
                                    wire::QpAddress* own);
// RESET -> INIT -> RTR towards the peer's QP, and on to RTS if the application's QP has reached
// RTS.
[[nodiscard]] int member_qp_connect(Group& group, int member, const wire::QpAddress& own,
                                    const wire::QpAddress& peer);
// RTR -> RTS for a connected QP, once the application's QP has reached RTS.
[[nodiscard]] int member_qp_start_sending(Group& group, int member);
// Like member_qp_start_sending(), on any thread; the caller holds modify_mutex.
[[nodiscard]] int start_sending(Group& group, int member);
// Brings the QP to RESET, which ends all work on it and forgets it, and on to ERR, where it takes
// no more work. Returns an errno if RESET is refused.
[[nodiscard]] int member_qp_stop(Group& group, int member);
// Brings the QP to ERR or RESET from any state, also on a thread of the application. Returns 0 or
// an errno; ENODEV: there is no QP.
[[nodiscard]] int member_qp_to_state(Group& group, int member, ibv_qp_state state);
// Brings the QP to ERR, on a thread of the application. Returns 0 or an errno; EBUSY: the NIC is
// late, and nothing was waited for.
int member_qp_shut(Group& group, int member);

// Posts the empty WRITE that tries a new connection of the member's QP. Control thread.
void member_qp_probe(Group& group, int member);
// Looks for the probe's completion.
Probe member_qp_probe_look(Group& group, int member);
void member_qp_probe_forget(Group& group, int member);

// Whether the member's QP has broken, and how long its NIC may wait for an acknowledgement.
// nullopt: the NIC does not say.
struct QpHealth {
  bool is_broken;
  std::chrono::nanoseconds patience;  // 0: the NIC never gives up
};
std::optional<QpHealth> member_qp_health(Group& group, int member);
// How long, at most, the NIC would have waited for an acknowledgement on the stock library, with
// the attributes that the application asked for. 0: it has not asked yet, and cannot send.
std::chrono::nanoseconds asked_patience(Group& group);

// Limits timeout and retry count: to give up early is cheap when there is another path.
void bound_patience(ibv_qp_attr& attr);
// The number of bytes that an ibv_mtu stands for.
inline uint32_t mtu_bytes(ibv_mtu mtu) {
  return 128u << mtu;
}

}  // namespace shift::group

// Requests of the layer's own on a member's QP, beside the application's: which are under way, and
// by which number their completions are known.
//
// An application may give its requests any wr_id. So a request of the layer's has a number that
// none of the application's has which is under way on that QP; whatever is posted after it
// completes after it; and the number means nothing once it has completed.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace shift::group {

struct CompletionQueue;
struct Group;

struct OwnRequest {
  enum class Kind : uint8_t { kSendMarker, kRecvMarker, kProbe };
  uint64_t wr_id;
  Kind kind;
};
// Those of one QP that have not completed, in the order of posting. Each queue's under the mutex of
// its CQ.
struct OwnRequests {
  std::vector<OwnRequest> sends, receives;
};

// The number of a request that the caller is about to post on the member's QP. What the
// application has there does not change meanwhile: sends are parked and RecvQueue::mutex is held,
// or both queues are parked; or, for a probe, the application has nothing there.
[[nodiscard]] uint64_t own_begin(Group& group, int member, OwnRequest::Kind kind);
// The NIC did not take it. Not when soft-RoCE's doorbell failed, which names no request as bad:
// then the request may yet complete.
void own_refused(Group& group, int member, uint64_t wr_id);
// Which of them a completion tells of, if it is none of the application's; it is over then. Caller
// holds cq.mutex.
[[nodiscard]] std::optional<OwnRequest::Kind> own_take(const CompletionQueue& cq, Group& group,
                                                       int member, const ibv_wc& wc);
// The QP has been RESET: nothing is under way on it. What it left in its CQs (soft-RoCE does not
// take it back) is dropped first, or it would be taken for the next connection's. Not inside
// Group::modify_mutex.
void own_forget(Group& group, int member);

}  // namespace shift::group

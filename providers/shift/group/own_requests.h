// The layer's own requests on a member's QP, beside the application's: which of them are under way,
// and by which number the layer knows their completions.
//
// An application may give its requests any wr_id. So a request of the layer gets a number that no
// request of the application has that is under way on that QP. Whatever is posted later also
// completes later, and the number means nothing once the layer's request has completed.
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
// The requests of one QP that have not completed, in the order of posting. Each queue's list is
// under the mutex of its CQ.
struct OwnRequests {
  std::vector<OwnRequest> sends, receives;
};

// Returns the number of a request that the caller is about to post on the member's QP. Meanwhile
// the application's requests there must not change: sends are parked and the caller holds
// RecvQueue::mutex, or both queues are parked; or, for a probe, the application has no request
// there.
[[nodiscard]] uint64_t own_begin(Group& group, int member, OwnRequest::Kind kind);
// The NIC has not taken the request. Must not be called when soft-RoCE's doorbell has failed, which
// names no request as bad: then the request may yet complete.
void own_refused(Group& group, int member, uint64_t wr_id);
// Which of the layer's requests the completion tells of, and nullopt if it is the application's.
// That request is over then. The caller holds cq.mutex.
[[nodiscard]] std::optional<OwnRequest::Kind> own_take(const CompletionQueue& cq, Group& group,
                                                       int member, const ibv_wc& wc);
// The QP has been RESET, so no request is under way on it. First drops the completions that it has
// left in its CQs (soft-RoCE does not take them back); otherwise they would be taken for those of
// the next connection. The caller must not hold Group::modify_mutex.
void own_forget(Group& group, int member);

}  // namespace shift::group

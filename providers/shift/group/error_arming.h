// CQs for which the application has no completion channel are attached to a channel of the layer's
// own on each NIC, where events announce errors on them. Called on the control thread, unless a
// comment says otherwise.
#pragma once

#include <functional>

namespace shift::group {

struct CompletionQueue;
struct Context;

// Asks each member's NIC for an event when the next error completes on this CQ.
void errors_arm(CompletionQueue& cq);
// One member's. The caller holds the queue's mutex, on any thread.
void errors_arm(CompletionQueue& cq, int member);
// Takes the events of the member's channel, and calls `take` with each event's CQ.
void errors_take(Context& context, int member, const std::function<void(CompletionQueue&)>& take);

}  // namespace shift::group

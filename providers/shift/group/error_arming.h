// CQs without a completion channel of the application's own are attached to a channel of the
// layer's on each NIC, which tells of errors on them. Called on the control thread.
#pragma once

#include <functional>

namespace shift::group {

struct CompletionQueue;
struct Context;

// Asks each member's NIC for an event when the next error completes.
void errors_arm(const CompletionQueue& cq);
// Takes the events of the member's channel, and tells of each one's queue.
void errors_take(Context& context, int member, const std::function<void(CompletionQueue&)>& take);

}  // namespace shift::group

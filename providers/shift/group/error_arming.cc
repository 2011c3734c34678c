#include "group/error_arming.h"

#include <mutex>

#include "group/completion_queue.h"
#include "group/context.h"
#include "group/stock.h"

namespace shift::group {

// Arms for solicited events only: errors count as solicited, and ordinary completions wake no
// thread. Linux's soft-RoCE does not count a sender's error as solicited. With it any completion
// wakes the control thread, as often as the caller arms.
void errors_arm(CompletionQueue& cq, int member) {
  if (cq.is_ending) return;
  ibv_cq* real = cq.real[member];
  const bool solicited_only = !cq.context->members[member].is_soft_roce;
  if (real != nullptr) real->context->ops.req_notify_cq(real, solicited_only ? 1 : 0);
}

void errors_arm(CompletionQueue& cq) {
  std::lock_guard lock(cq.mutex);
  for (int member = 0; member < cq.context->member_count; member++) errors_arm(cq, member);
}

void errors_take(Context& context, int member, const std::function<void(CompletionQueue&)>& take) {
  ibv_cq* real;
  void* owner;
  while (stock->get_cq_event(context.members[member].watch, &real, &owner) == 0) {
    take(*static_cast<CompletionQueue*>(owner));
    // Only now: until then the queue is not destroyed.
    stock->ack_cq_events(real, 1);
  }
}

}  // namespace shift::group

// What makes completion queues and their channels, and what their events are about.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace shift::group {
struct CompletionQueue;
struct Context;
}  // namespace shift::group

namespace shift::ops {

// The number of entries to ask the NIC for, and
// the channel there.
int room_for(const group::Context& context, int cqe);
// Would a poll find something that no event has told of? Taken out of the queue, as far as it is
// not for the application.
bool has_news(group::CompletionQueue* q);

ibv_comp_channel* real_channel(group::Context& context, ibv_comp_channel* channel);
// Completes the virtual object over `cq->real[kDefault]`, whose cq_context it is.
group::CompletionQueue* publish_cq(std::unique_ptr<group::CompletionQueue> cq,
                                   group::Context& context, ibv_comp_channel* channel,
                                   void* cq_context);

// The number of entries that the application is shown.
int shown_cqe(const group::CompletionQueue& cq);

}  // namespace shift::ops

// What the makers of completion queues share, and what a completion event may announce.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace shift::group {
struct CompletionQueue;
struct Context;
}  // namespace shift::group

namespace shift::ops {

// The number of entries to ask the NIC for when the application wants `cqe`.
int room_for(const group::Context& context, int cqe);
// Would a poll find a completion that no event has announced? The call takes completions that are
// not for the application out of the queue.
bool has_news(group::CompletionQueue* q);

// The default NIC's channel under `channel`; without one, the watch channel of the layer.
ibv_comp_channel* real_channel(group::Context& context, ibv_comp_channel* channel);
// Completes the virtual object over `cq->real[kDefault]`, whose own cq_context is this object.
group::CompletionQueue* publish_cq(std::unique_ptr<group::CompletionQueue> cq,
                                   group::Context& context, ibv_comp_channel* channel,
                                   void* cq_context);

// The number of entries that the application sees in ibv_cq::cqe.
int shown_cqe(const group::CompletionQueue& cq);

}  // namespace shift::ops

// What the makers of completion queues share, and what a completion event may announce.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "ops/deputy.h"

namespace shift::group {
struct CompletionQueue;
struct Context;
}  // namespace shift::group

namespace shift::ops {

// The number of entries to ask the NIC for, when the application asks for `cqe` and the CQ's
// protected QPs can have `flushable` requests. A QP that is fenced completes all of them, the
// unsignaled ones, too. Where a request keeps its place in the QP's queue until its completion is
// polled, no more than these can wait, unless the CQ takes others' completions: of those as many
// as the application asked for may wait beside. On other NICs there is always room for both, and
// for twice `cqe` from the start. At most what the NIC can make. The caller holds cq.room_mutex, or
// nobody else knows the CQ.
int room_for(const group::Context& context, const group::CompletionQueue& cq, int cqe,
             int flushable);
// Would a poll find a completion that no event has announced? The call takes completions that are
// not for the application out of the queue.
bool has_news(group::CompletionQueue* q);

// The default NIC's channel under `channel`; without one, the watch channel of the layer.
// `at` is where the CQ is made; null on a deputy.
ibv_comp_channel* real_channel(group::Context& context, Home at, ibv_comp_channel* channel);
// Completes the virtual object over `cq->real[kDefault]`, whose own cq_context is this object.
group::CompletionQueue* publish_cq(std::unique_ptr<group::CompletionQueue> cq,
                                   group::Context& context, ibv_comp_channel* channel,
                                   void* cq_context);

// The number of entries that the application is shown if it asked for `asked`, the layer asked the
// NIC for `room`, and the NIC made `real`, rounded up.
int shown_cqe(int asked, int room, int real);

// Makes room in the CQ for the completions of a protected QP that can have so many requests; on the
// further members the command threads do it later. Returns false when the NIC cannot; then nothing
// is changed. Takes the CQ's locks, and may sleep in the kernel.
[[nodiscard]] bool cq_reserve(group::CompletionQueue& cq, uint32_t entries);
// Makes room for completions beside those of protected QPs' own queues: of a shared receive queue,
// or of a QP or work queue that is not protected. The application bounds their number by what it
// asked for.
void cq_take_others(group::CompletionQueue& cq);
// The QP is gone. The CQ keeps its size.
void cq_release(group::CompletionQueue& cq, uint32_t entries);

}  // namespace shift::ops

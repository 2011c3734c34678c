// Shared receive queues.
#include <memory>

#include "group/shared_queue.h"
#include "group/twins.h"
#include "ops/deputy.h"
#include "ops/entry.h"
#include "ops/tables.h"

namespace shift::ops {

using group::Context;
using group::kDefault;
using group::SharedQueue;

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init) noexcept try {
  Context* c = Context::from(pd->context);
  ibv_srq* real = make_at_home(*c, [&](Home at) -> ibv_srq* {
    return stock->create_srq(at.is_deputy ? c->deputy.pd : virtual_pd(pd)->real[kDefault], init);
  });
  if (real == nullptr) return nullptr;
  ibv_srq_attr attr{};
  if (stock->query_srq(real, &attr) != 0) attr = init->attr;
  std::unique_ptr<SharedQueue> queue;
  try {
    queue = std::make_unique<SharedQueue>(*c, attr.max_wr, attr.max_sge);
    std::lock_guard lock(c->mutex);
    c->srqs.push_back(queue.get());
  } catch (const std::bad_alloc&) {
    (void)stock->destroy_srq(real);
    throw;
  }
  queue->srq.context = pd->context;
  queue->srq.srq_context = init->srq_context;
  queue->srq.pd = pd;
  queue->srq.handle = real->handle;
  pthread_mutex_init(&queue->srq.mutex, nullptr);
  pthread_cond_init(&queue->srq.cond, nullptr);
  queue->pd = virtual_pd(pd);
  queue->pd->users++;
  queue->members[kDefault].real = real;
  queue->pd_held = group::Held(queue->pd);
  group::twin_srqs_create(*queue);
  return &queue.release()->srq;
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  return SharedQueue::from(srq)->post(wr, bad_wr);
}

// The size cannot be changed, and IBV_DEVICE_SRQ_RESIZE is not among the capabilities. The posted
// receives may lie on several NICs, and all of them must fit into the queue of each single NIC.
int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) noexcept {
  SharedQueue* queue = SharedQueue::from(srq);
  if (mask & ~IBV_SRQ_LIMIT) return EINVAL;
  if (attr->srq_limit >= queue->max_wr) return EINVAL;
  return queue->limit_set(attr->srq_limit);
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attr) noexcept {
  SharedQueue* queue = SharedQueue::from(srq);
  *attr = {};
  attr->max_wr = queue->max_wr;
  attr->max_sge = queue->max_sge;
  attr->srq_limit = queue->limit_armed ? queue->limit : 0;
  return 0;
}

int destroy_srq(ibv_srq* srq) noexcept {
  SharedQueue* queue = SharedQueue::from(srq);
  Context& context = queue->context;
  if (queue->users != 0) return EBUSY;
  // The layer's own QPs use the queue, so the command thread destroys them first.
  const int error = group::default_destroy(context, true, [held = group::Held(queue)] {
    held->recall[kDefault].reset();
    return stock->destroy_srq(held->members[kDefault].real);
  });
  if (error != 0 && !context.members[kDefault].dead) return error;
  coordinator().later([held = group::Held(queue)] { group::twin_srqs_destroy(*held); });
  {
    std::lock_guard lock(context.mutex);
    std::erase(context.srqs, queue);
  }
  context.events.forget(srq);
  queue->pd->users--;
  group::let_go(queue);
  return 0;
}

}  // namespace shift::ops

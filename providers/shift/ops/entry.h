// Shared by the files of ops/: access to virtual objects and to the background threads.
#pragma once

#include <cerrno>
#include <memory>
#include <new>

#include "control/runtime.h"
#include "group/completion_queue.h"
#include "group/context.h"
#include "group/domain.h"
#include "ops/glue.h"

namespace shift::ops {

inline group::ProtectionDomain* virtual_pd(ibv_pd* pd) {
  return group::ProtectionDomain::from(pd);
}
inline bool is_virtual_cq(ibv_cq* cq) {
  return cq != nullptr && owns(cq->context);
}
inline group::CompletionChannel* virtual_channel(ibv_comp_channel* channel) {
  return reinterpret_cast<group::CompletionChannel*>(channel);
}

// Runs a task for the backup member; never waits for it.
template <typename Task>
void in_background(Task task) {
  if (auto* runtime = control::runtime()) runtime->worker.call_soon(std::move(task));
}
// The same about an object that outlives its jobs.
template <typename Object, typename Task>
void in_background_for(Object* object, Task task) {
  ++object->jobs;
  in_background([object, task] {
    task(*object);
    --object->jobs;  // it may be gone behind this
  });
}
// The same, and waits: for taking a backup object down behind everything that was queued for it.
// False: there is no worker, as in a fork child with what it inherited.
template <typename Task>
bool in_background_and_wait(Task task) {
  auto* runtime = control::runtime();
  return runtime != nullptr && runtime->worker.call_and_wait(task);
}
inline control::Coordinator& coordinator() {
  return control::runtime()->coordinator;
}

// Hot entry points, installed into a virtual context's and QP's function tables (post.cc,
// builder.cc).
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
int post_send_exact(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);  // in the mode exact
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr);
int next_poll(ibv_cq_ex* cq);
void end_poll(ibv_cq_ex* cq);
// Fills in the functions that read a completion's fields (extended_cqs.cc).
void install_readers(ibv_cq_ex& cq, uint64_t wc_flags);
void install_builder(group::Group& group);
// Parks or moves on what the application posts while the default path is barred. Caller holds
// send.mutex; `count` entries were appended to the journal.
int send_appended(group::Group& group, uint64_t from);
// The group's completions come from this queue. One that was let go of has no protected QPs.
void cq_join(group::CompletionQueue& cq, group::Group& group);
// errno when the journal has no room for one more (the provider beneath would say ENOMEM).
bool send_has_room(const group::Group& group, uint32_t pending);

// For what makes completion queues. The number of entries to ask the NIC for, and its channel.
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

// Extended verbs of a virtual context, and classic ones that reach it through its table (context.cc
// fills it).
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept;
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* init) noexcept;
// What objects on the domain have let go of goes to its allocator.
void give_back_released(group::ProtectionDomain& pd);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) noexcept;
ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept;
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
              uint32_t count) noexcept;
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr) noexcept;
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept;
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) noexcept;
int bind_window(group::Group& group, ibv_mw* mw, ibv_mw_bind* bind);  // on a protected QP
int dealloc_mw(ibv_mw* mw) noexcept;
// Are the faults of its path, as far as is known? Not with Context::mutex held.
bool is_masked(group::Group& group);
// Those of any of its QPs. Not with any of its locks held.
bool context_is_masked(group::Context& context);
// Between these the context is found by its address or its NIC's, and its QPs are by theirs.
void context_is_open(group::Context* context);
void context_is_closed(group::Context* context);
// Those that make objects which the layer does not protect (stock_objects.cc).
void install_stock_objects(verbs_context& verbs);

}  // namespace shift::ops

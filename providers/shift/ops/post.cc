// The hot path of ibv_post_send and ibv_post_recv. All cold code is in post_slow.cc. Beside the
// NIC's own post function, a healthy call costs one store and one compare for its thread's slot,
// and the journal entry.
#include "group/group.h"
#include "ops/post_slow.h"
#include "ops/tables.h"

namespace shift::ops {

using group::Bias;
using group::Group;
using group::kDefault;
using group::ThreadSlot;

namespace {

// The NIC has accepted only the WRs before `bad`. Leaves the hot section.
[[gnu::cold, gnu::noinline]] int post_send_partly(Group& group, const ibv_send_wr* wr,
                                                  const ibv_send_wr* bad, int error) {
  const bool taken = journal_queued(group, wr, bad, error);
  Bias::leave(group::tls_slot);
  const int shown = post_send_failed(group, error);
  return taken ? 0 : shown;
}

[[gnu::cold, gnu::noinline]] int post_recv_partly(Group& group, const ibv_recv_wr* wr,
                                                  const ibv_recv_wr* bad, int error) {
  for (; wr != bad; wr = wr->next) group.recv.journal.append(*wr);
  Bias::leave(group::tls_slot);
  return error;
}

// `exact`: the mode is exact. It is a template argument, since the mode is known when the context
// is opened, and the other modes should pay nothing for this one.
template <bool exact>
[[gnu::always_inline]] inline int post_send_in(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Group* g = Group::from(qp);
  ThreadSlot* self = group::tls_slot;
  if (!g->send.bias.enter(self, &g->send)) [[unlikely]] {
    Bias::leave(self);
    return post_send_slow(*g, wr, bad_wr);
  }
  ibv_qp* real = g->real[kDefault].set_before();
  const int error = real->context->ops.post_send(real, wr, bad_wr);
  // The journal entries are made after the call, so that it holds only what the NIC has accepted. A
  // switch cannot come in between, because it waits until this thread leaves the hot section.
  if (error != 0) [[unlikely]]
    return post_send_partly(*g, wr, *bad_wr, error);
  if constexpr (exact) {
    g->send.journal.add_chain(wr);
  } else {
    g->send.journal.append_chain(wr);
  }
  Bias::leave(self);
  return 0;
}

}  // namespace

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  return post_send_in<false>(qp, wr, bad_wr);
}

int post_send_exact(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  return post_send_in<true>(qp, wr, bad_wr);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Group* g = Group::from(qp);
  ThreadSlot* self = group::tls_slot;
  if (!g->recv.bias.enter(self, &g->recv)) [[unlikely]] {
    Bias::leave(self);
    return post_recv_slow(*g, wr, bad_wr);
  }
  ibv_qp* real = g->real[kDefault].set_before();
  const int error = real->context->ops.post_recv(real, wr, bad_wr);
  if (error != 0) [[unlikely]]
    return post_recv_partly(*g, wr, *bad_wr, error);
  g->recv.journal.append_chain(wr);
  Bias::leave(self);
  return 0;
}

}  // namespace shift::ops

// The hot path: ibv_post_send, ibv_post_recv, ibv_poll_cq. Everything cold lives in post_slow.cc
// and group/completion.cc. What a healthy call pays: its thread's slot (one store, one compare),
// the journal entry (post) or the counter (poll), and the call beneath that it makes anyway.
#include "group/completion.h"
#include "ops/entry.h"
#include "ops/post_slow.h"

namespace shift::ops {

using group::Bias;
using group::CompletionQueue;
using group::Counters;
using group::Group;
using group::kDefault;
using group::ThreadSlot;

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Group* g = Group::from(qp);
  ThreadSlot* self = group::tls_slot;
  if (!g->send.bias.enter(self, &g->send)) [[unlikely]] {
    Bias::leave(self);
    return post_send_slow(*g, wr, bad_wr);
  }
  ibv_qp* real = g->real[kDefault];
  const int error = real->context->ops.post_send(real, wr, bad_wr);
  // Journalled after the call: what is not accepted is not in it. A switch cannot come between,
  // since it waits until this section is left.
  const ibv_send_wr* end = error == 0 ? nullptr : *bad_wr;
  for (; wr != end; wr = wr->next) g->send.journal.append(*wr);
  Bias::leave(self);
  if (error != 0) [[unlikely]]
    return post_send_failed(*g, error);
  return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Group* g = Group::from(qp);
  ThreadSlot* self = group::tls_slot;
  if (!g->recv.bias.enter(self, &g->recv)) [[unlikely]] {
    Bias::leave(self);
    return post_recv_slow(*g, wr, bad_wr);
  }
  ibv_qp* real = g->real[kDefault];
  const int error = real->context->ops.post_recv(real, wr, bad_wr);
  const ibv_recv_wr* end = error == 0 ? nullptr : *bad_wr;
  for (; wr != end; wr = wr->next) g->recv.journal.append(*wr);
  Bias::leave(self);
  return error;
}

namespace {

// The counters for a completion's QP; `unprotected` for QPs that are not ours.
[[gnu::noinline]] Counters* find_counters(CompletionQueue* q, uint32_t qpn) {
  Counters* counters = q->context->qps[kDefault].find(qpn);
  q->last_qpn = qpn;
  q->last_counters = counters != nullptr ? counters : &q->unprotected;
  return q->last_counters;
}

}  // namespace

int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  CompletionQueue* q = CompletionQueue::from(cq);
  ThreadSlot* self = group::tls_slot;
  if (!q->bias.enter(self, q)) [[unlikely]] {
    Bias::leave(self);
    return group::poll_slow(*q, count, wc);
  }
  ibv_cq* real = q->real[kDefault];
  int got = real->context->ops.poll_cq(real, count, wc);
  for (int i = 0; i < got; i++) {
    if (wc[i].status != IBV_WC_SUCCESS) [[unlikely]] {
      got = group::poll_error(*q, count, wc, i, got);
      break;
    }
    Counters* counters =
        wc[i].qp_num == q->last_qpn ? q->last_counters : find_counters(q, wc[i].qp_num);
    counters->done[wc[i].opcode >> 7 & 1]++;
  }
  Bias::leave(self);
  return got;
}
static_assert(IBV_WC_RECV == 1 << 7);

}  // namespace shift::ops

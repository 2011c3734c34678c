// The hot path of ibv_poll_cq, ibv_start_poll, ibv_next_poll and ibv_end_poll. All cold code is in
// group/completion.cc and group/extended.cc.
#include <chrono>
#include <thread>

#include "group/completion_events.h"
#include "group/context.h"
#include "group/extended.h"
#include "ops/completion_queues.h"
#include "ops/poll_hot.h"
#include "ops/tables.h"
#include "util/planted.h"

namespace shift::ops {

using group::Bias;
using group::CompletionQueue;
using group::Counters;
using group::ExtendedPoll;
using group::kDefault;
using group::Manner;
using group::ThreadSlot;

Counters* find_counters(CompletionQueue* q, uint32_t qpn) {
  Counters* counters = q->context->members[kDefault].qps.find(qpn);
  q->last_qpn = qpn;
  q->last_counters = counters != nullptr ? counters : &q->unprotected;
  return q->last_counters;
}

namespace {

// Apart from poll_cq(), so that polls of nothing, and of one completion, need few registers.
[[gnu::noinline]] int count_several(CompletionQueue* q, ibv_wc* wc, int got, ThreadSlot* self) {
  got = count_polled(q, self->asked, wc, nullptr, got);
  Bias::leave(self);
  return got;
}

[[gnu::cold, gnu::noinline]] int poll_slowly(CompletionQueue* q, int count, ibv_wc* wc) {
  Bias::leave(group::tls_slot);
  return group::poll_slow(*q, count, wc);
}

}  // namespace

int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  CompletionQueue* q = CompletionQueue::from(cq);
  ThreadSlot* self = group::tls_slot;
  if (!q->bias.enter(self, q)) [[unlikely]]
    return poll_slowly(q, count, wc);
  self->asked = count;
  ibv_cq* real = q->real[kDefault].set_before();
  const int got = real->context->ops.poll_cq(real, count, wc);
  if (got > 0) {
    if (got != 1 || wc->status != IBV_WC_SUCCESS || wc->qp_num != q->last_qpn)
      return count_several(q, wc, got, self);
    q->last_counters->done[direction_of(*wc) / IBV_WC_RECV] += 1;
  }
  Bias::leave(self);
  return got;
}

bool has_news(CompletionQueue* q) {
  // put_first() takes an ibv_wc alone, which does not hold all fields of an extended completion.
  if (q->extended != nullptr) return group::has_news(*q);
  ThreadSlot* self = group::tls_slot;
  int raw = 0, got = 0;
  if (q->bias.enter(self, q)) [[likely]] {
    ibv_cq* real = q->real[kDefault].set_before();
    ibv_wc wc[2];  // one is polled; the compiler cannot see that no second is read
    raw = real->context->ops.poll_cq(real, 1, wc);
    got = count_polled(q, 1, wc, nullptr, raw);
    if (got > 0) group::put_first(*q, wc[0]);
    Bias::leave(self);
    if (got > 0 || raw == 0) return got > 0;
  } else {
    Bias::leave(self);
  }
  return group::has_news(*q);
}

namespace {

constexpr int kBatch = ExtendedPoll::kBatch;

int show_next(CompletionQueue* q, ExtendedPoll& poll) {
  const ibv_wc& wc = poll.batch[poll.next++];
  q->shown = &wc;
  q->cq_ex.status = wc.status;
  q->cq_ex.wr_id = wc.wr_id;
  return 0;
}

// For a planted bug only: the batch is taken for the caller's own after an error, and another
// thread has time to poll before the caller goes on.
[[gnu::cold, gnu::noinline]] int count_and_keep(CompletionQueue* q, ibv_wc* wc,
                                                group::WcExtra* extra, int got) {
  got = count_polled<false>(q, kBatch, wc, extra, got);
  if (!q->bias.has_owner()) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  return got;
}

// Polls the default NIC's CQ into the batch. Called inside the hot section. False: there was an
// error, and the batch no longer belongs to the caller.
bool fill(CompletionQueue* q, ExtendedPoll& poll) {
  ibv_wc* wc = poll.batch.data();
  int got;
  if (!poll.needs_device) [[likely]] {
    ibv_cq* real = q->real[kDefault].set_before();
    got = real->context->ops.poll_cq(real, kBatch, wc);
    got = SHIFT_PLANT(batch_kept_after_error) ? count_and_keep(q, wc, nullptr, got)
                                              : count_polled<true>(q, kBatch, wc, nullptr, got);
  } else {
    got = poll.harvest(kBatch, wc, poll.batch_extra.data());
    got = count_polled<true>(q, kBatch, wc, poll.batch_extra.data(), got);
  }
  if (got < 0) [[unlikely]]
    return false;
  poll.next = 0;
  poll.count = static_cast<uint32_t>(got);
  return true;
}

[[gnu::cold, gnu::noinline]] int show_next_slow(CompletionQueue* q, bool begin) {
  Bias::leave(group::tls_slot);
  return group::extended_fill_slow(*q, begin) ? show_next(q, *q->extended) : ENOENT;
}

}  // namespace

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  CompletionQueue* q = CompletionQueue::from(cq);
  if (attr->comp_mask != 0) [[unlikely]]
    return EINVAL;
  ExtendedPoll& poll = *q->extended;
  ThreadSlot* self = group::tls_slot;
  if (!q->bias.enter<Manner::kExtended>(self, q) ||
      poll.open.load(std::memory_order_relaxed) != nullptr) [[unlikely]] {
    return show_next_slow(q, true);
  }
  if (poll.next == poll.count && !fill(q, poll)) [[unlikely]]
    return show_next_slow(q, true);
  if (poll.next == poll.count) {
    Bias::leave(self);
    return ENOENT;
  }
  poll.open.store(ExtendedPoll::thread_mark(), std::memory_order_relaxed);
  Bias::leave(self);
  return show_next(q, poll);
}

namespace {

// Apart from next_poll(), which needs few registers.
[[gnu::noinline]] int fill_and_show(CompletionQueue* q) {
  ExtendedPoll& poll = *q->extended;
  ThreadSlot* self = group::tls_slot;
  if (!q->bias.enter<Manner::kExtended>(self, q) || !fill(q, poll)) [[unlikely]]
    return show_next_slow(q, false);
  Bias::leave(self);
  return poll.count != 0 ? show_next(q, poll) : ENOENT;
}

}  // namespace

int next_poll(ibv_cq_ex* cq) {
  CompletionQueue* q = CompletionQueue::from(cq);
  ExtendedPoll& poll = *q->extended;
  return poll.next < poll.count ? show_next(q, poll) : fill_and_show(q);
}

void end_poll(ibv_cq_ex* cq) {
  CompletionQueue::from(cq)->extended->open.store(nullptr, std::memory_order_release);
}

}  // namespace shift::ops

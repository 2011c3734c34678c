// What a program changes about its completion queue: the size, and how often it gets events.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "group/command_threads.h"
#include "group/completion.h"
#include "group/error_arming.h"
#include "ops/completion_queues.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::Context;
using group::kDefault;

// Makes the change on each further member's CQ once those CQs have been made. The CQ is taken away
// meanwhile, because no other thread may wait for a NIC that hangs.
template <typename Change>
void change_twins(CompletionQueue* q, const char* what, Change change) {
  for (int member = kDefault + 1; member < q->context->member_count; member++) {
    (void)group::on_nic(*q->context, member, [held = group::Held(q), member, what, change] {
      CompletionQueue& cq = *held;
      ibv_cq* twin;
      {
        std::lock_guard lock(cq.mutex);
        twin = std::exchange(cq.real[member], nullptr);
      }
      if (twin == nullptr) return;
      if (const int error = change(twin)) {
        SHIFT_WARN_LIMITED("%s: a CQ on %s keeps its %s: errno %d", cq.context->device->dev.name,
                           cq.context->name(member), what, error);
      }
      std::lock_guard lock(cq.mutex);
      cq.real[member] = twin;
      // Whoever armed the queue meanwhile did not reach this CQ.
      if (cq.channel == nullptr) group::errors_arm(cq, member);
      if (cq.poll_all && cq.armed) (void)twin->context->ops.req_notify_cq(twin, cq.armed_solicited);
    });
  }
}

// The default's CQ has been resized already.
void resize_twins(CompletionQueue& cq, int room) {
  cq.entries = cq.real[kDefault]->cqe;
  change_twins(&cq, "size", [room](ibv_cq* twin) { return stock->resize_cq(twin, room); });
}

// Changes the default's CQ, on a thread of the application. No other thread touches that CQ
// meanwhile. A provider whose CQ serves one thread has no lock of its own, and the application's
// thread that polls it does not know that the making of a QP changes it. The layer's threads may
// not wait for a NIC that hangs, either.
template <typename Change>
int change_default(CompletionQueue& cq, Change change) {
  {
    auto lock = lock_poll(cq);
    cq.is_changing = true;
  }
  const int error = change(cq.real[kDefault]);
  bool look;
  {
    std::lock_guard lock(cq.mutex);
    cq.is_changing = false;
    look = std::exchange(cq.is_passed_over, false);
  }
  if (look) group::inspect(cq);
  return error;
}

}  // namespace

int resize_cq(ibv_cq* cq, int cqe) noexcept {
  CompletionQueue* q = CompletionQueue::from(cq);
  std::lock_guard resizing(q->room_mutex);
  const int room = room_for(*q->context, *q, cqe, q->flushable);
  const int error = change_default(*q, [&](ibv_cq* real) {
    // A program that asks for less room than its completions need gets the error, although the real
    // CQ has room for them.
    if (cqe < cq->cqe && room != cqe && q->flushable <= cqe) {
      if (const int refused = stock->resize_cq(real, cqe)) return refused;
    }
    return stock->resize_cq(real, room);
  });
  if (error != 0) return error;
  q->asked = cqe;
  cq->cqe = shown_cqe(cqe, room, q->real[kDefault]->cqe);
  resize_twins(*q, room);
  return 0;
}

namespace {

// The caller holds cq.room_mutex.
bool reserve(CompletionQueue& cq, uint32_t entries) {
  const int64_t flushable = int64_t{cq.flushable} + entries;
  if (flushable > std::numeric_limits<int>::max()) return false;
  ibv_cq* real = cq.real[kDefault];
  const int room = room_for(*cq.context, cq, cq.asked, static_cast<int>(flushable));
  if (room > real->cqe && !SHIFT_PLANT(cq_not_grown)) {
    // A CQ that many QPs share grows in few steps: each is a command of the NIC.
    const int max = cq.context->device_attr.orig_attr.max_cqe;
    const int grown = std::max(room, real->cqe <= max / 2 ? 2 * real->cqe : max);
    (void)change_default(cq, [&](ibv_cq* one) {
      const int refused = stock->resize_cq(one, grown);
      return refused == 0 ? 0 : stock->resize_cq(one, room);
    });
    resize_twins(cq, real->cqe);
  }
  if (real->cqe < flushable && !SHIFT_PLANT(cq_not_grown)) return false;
  cq.flushable = static_cast<int>(flushable);
  return true;
}

}  // namespace

bool cq_reserve(CompletionQueue& cq, uint32_t entries) {
  std::lock_guard resizing(cq.room_mutex);
  return reserve(cq, entries);
}

void cq_take_others(CompletionQueue& cq) {
  std::lock_guard resizing(cq.room_mutex);
  if (SHIFT_PLANT(completions_of_others_forgotten) || std::exchange(cq.takes_others, true)) return;
  (void)reserve(cq, 0);  // what protected QPs need is there already
}

void cq_release(CompletionQueue& cq, uint32_t entries) {
  std::lock_guard resizing(cq.room_mutex);
  cq.flushable -= static_cast<int>(entries);
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept {
  if (asks_for_newer(attr->attr_mask, IBV_CQ_ATTR_RESERVED - 1)) return EOPNOTSUPP;
  CompletionQueue* q = CompletionQueue::from(cq);
  ibv_cq* real = q->real[kDefault];
  const auto* verbs = verbs_get_ctx_op(real->context, modify_cq);
  if (verbs == nullptr) return EOPNOTSUPP;
  if (const int error = verbs->modify_cq(real, attr)) return error;
  change_twins(q, "moderation", [copy = *attr](ibv_cq* twin) {
    ibv_modify_cq_attr wanted = copy;
    const auto* twin_verbs = verbs_get_ctx_op(twin->context, modify_cq);
    return twin_verbs != nullptr ? twin_verbs->modify_cq(twin, &wanted) : EOPNOTSUPP;
  });
  return 0;
}

}  // namespace shift::ops

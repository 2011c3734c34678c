// What a program changes about its completion queue: the size, and how often it gets events.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "group/completion.h"
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

// Makes the change on each further member's CQ once those CQs have been made.
template <typename Change>
void change_twins(CompletionQueue* q, const char* what, Change change) {
  in_background_for(q, [what, change](CompletionQueue& cq) {
    for (int member = kDefault + 1; member < cq.real.size(); member++) {
      std::lock_guard lock(cq.mutex);
      if (cq.real[member] == nullptr) continue;
      if (const int error = change(cq.real[member])) {
        SHIFT_WARN_LIMITED("%s: a CQ on %s keeps its %s: errno %d", cq.context->device->dev.name,
                           cq.context->name(member), what, error);
      }
    }
  });
}

void resize_twins(CompletionQueue& cq, int room) {
  change_twins(&cq, "size", [room](ibv_cq* twin) { return stock->resize_cq(twin, room); });
}

}  // namespace

int resize_cq(ibv_cq* cq, int cqe) noexcept {
  CompletionQueue* q = CompletionQueue::from(cq);
  std::lock_guard resizing(q->room_mutex);
  const int room = room_for(*q->context, cqe, q->flushable);
  {
    // A provider whose CQ serves one thread has no lock of its own against SHIFT's background
    // threads.
    auto lock = lock_poll(*q);
    ibv_cq* real = q->real[kDefault];
    // A program that asks for less room than its completions need gets the error, although the real
    // CQ has room for them.
    if (cqe < cq->cqe && room != cqe && q->flushable <= cqe) {
      if (const int error = stock->resize_cq(real, cqe)) return error;
    }
    if (const int error = stock->resize_cq(real, room)) return error;
    q->asked = cqe;
    cq->cqe = shown_cqe(cqe, room, real->cqe);
  }
  resize_twins(*q, room);
  return 0;
}

bool cq_reserve(CompletionQueue& cq, uint32_t entries) {
  std::lock_guard resizing(cq.room_mutex);
  const int64_t flushable = int64_t{cq.flushable} + entries;
  if (flushable > std::numeric_limits<int>::max()) return false;
  ibv_cq* real = cq.real[kDefault];
  const int room = room_for(*cq.context, cq.asked, static_cast<int>(flushable));
  if (room > real->cqe && !SHIFT_PLANT(cq_not_grown)) {
    // A CQ that many QPs share grows in few steps: each is a command of the NIC.
    const int max = cq.context->device_attr.orig_attr.max_cqe;
    const int grown = std::max(room, real->cqe <= max / 2 ? 2 * real->cqe : max);
    {
      auto lock = lock_poll(cq);
      if (stock->resize_cq(real, grown) != 0) (void)stock->resize_cq(real, room);
    }
    resize_twins(cq, real->cqe);
  }
  if (real->cqe < flushable && !SHIFT_PLANT(cq_not_grown)) return false;
  cq.flushable = static_cast<int>(flushable);
  return true;
}

void cq_release(CompletionQueue& cq, uint32_t entries) {
  std::lock_guard resizing(cq.room_mutex);
  cq.flushable -= static_cast<int>(entries);
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) noexcept {
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

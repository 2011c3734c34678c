#include "group/completion.h"

#include <algorithm>
#include <utility>

#include "group/completion_events.h"
#include "group/context.h"
#include "group/errors.h"
#include "group/extended.h"
#include "group/fault_sink.h"
#include "group/flushed.h"
#include "group/group.h"
#include "group/shared_queue.h"
#include "util/backoff.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {

CompletionQueue::CompletionQueue() = default;
CompletionQueue::~CompletionQueue() {
  pthread_mutex_destroy(&cq.mutex);
  pthread_cond_destroy(&cq.cond);
}

namespace {

Group* group_of(Counters* counters) {
  return counters == nullptr ? nullptr
                             : reinterpret_cast<Group*>(reinterpret_cast<char*>(counters) -
                                                        offsetof(Group, counters));
}

// Takes the completion if its request is the layer's own. The application sees none of these.
bool take_own(const CompletionQueue& cq, Group& group, int member, const ibv_wc& wc) {
  const auto kind = own_take(cq, group, member, wc);
  if (!kind) return false;
  const bool success = wc.status == IBV_WC_SUCCESS;
  switch (*kind) {
    case OwnRequest::Kind::kSendMarker:
      doubt_events(*group.send_cq);
      // Markers come out in order: those of a drain, which may have been called off, before the
      // fence's.
      if (group.life.markers.under_way > 0) {
        group.life.markers.under_way--;
        if (group.life.markers.awaited.exchange(false)) fault_sink->pump_wanted(&group);
        if (success) return true;
        // A flushed marker proves nothing about the requests before it, which failed or never ran.
        // It may be the only sign that the path has broken.
        group.life.markers.posted = false;
        if (!group.life.errors.switching &&
            group.life.errors.members[member].accept == Accept::kGuard) {
          own_flush_take(*group.send_cq, group, member);
        }
        return true;
      }
      if (group.life.errors.switching) {
        (success ? group.life.markers.passed : group.life.markers.drained[0]) = true;
      }
      return true;
    case OwnRequest::Kind::kRecvMarker:
      doubt_events(*group.recv_cq);
      if (group.life.errors.switching) group.life.markers.drained[1] = true;
      return true;
    case OwnRequest::Kind::kProbe: {
      auto& probe = group.life.members[member].probe;
      // A further member's CQ is armed only when there has been traffic on it.
      if (member == kDefault || group.send_cq->poll_all) doubt_events(*group.send_cq);
      if (probe == Probe::kPosted) probe = success ? Probe::kDone : Probe::kFailed;
      return true;
    }
  }
  return false;
}

void take_success(CompletionQueue& cq, Group& group, Completion wc) {
  const int queue = wc.opcode & IBV_WC_RECV ? 1 : 0;
  ++group.counters.done[queue];
  if (queue == 0 && !group.life.opcode_of_signaled.empty()) {
    auto it = group.life.opcode_of_signaled.find(static_cast<uint32_t>(group.counters.done[0]));
    if (it != group.life.opcode_of_signaled.end()) {
      wc.opcode = it->second;
      group.life.opcode_of_signaled.erase(it);
    }
  }
  translate(group, wc);
  cq.side.push_back(wc);
}

// Takes a completion of the application's that is not held back.
void show(CompletionQueue& cq, Group& group, int member, Completion wc) {
  if (wc.status == IBV_WC_SUCCESS) return take_success(cq, group, wc);
  translate(group, wc);
  cq.side.push_back(wc);
  // The application knows that this QP is broken, so nothing can be masked from now on.
  if (!group.life.errors.members[member].fault_reported.exchange(true)) {
    fault_sink->fault(&group, fsm::Event::kAppError, member, "an error while unprotected");
  }
}

}  // namespace

void take_completion(CompletionQueue& cq, int member, const Completion& wc) {
  Group* group = group_of(cq.context->members[member].qps.find(wc.qp_num));
  if (group == nullptr) {
    // On the default member the QP is one of the application's unprotected QPs, on another member
    // it belongs to a group that is destroyed.
    if (member != kDefault) {
      if (!SHIFT_PLANT(gone_unnoticed)) doubt_events(cq);
      return;
    }
    Completion shown = wc;
    shown.wr_id = consume_unprotected(*cq.context, wc).value_or(wc.wr_id);
    cq.side.push_back(shown);
    return;
  }
  if (take_own(cq, *group, member, wc)) return;
  std::unique_lock error(group->errors_mutex, std::defer_lock);
  if (wc.status != IBV_WC_SUCCESS) error.lock();
  const Accept accept = group->life.errors.members[member].accept;
  ReceiveSlot* slot =
      group->srq != nullptr && &cq == group->recv_cq ? group->srq->find(wc) : nullptr;
  if (wc.status != IBV_WC_SUCCESS && accept == Accept::kGuard) {
    flush_note(cq, *group, wc, slot != nullptr);
    return error_take(cq, *group, member, wc, slot);
  }
  if (accept == Accept::kDrop) {
    // A path that broke has taken the receive: it serves the next message.
    if (slot != nullptr) group->srq->give_back(slot);
    if (!SHIFT_PLANT(dropped_unnoticed)) doubt_events(cq);
    return;
  }
  Completion shown = wc;
  if (slot != nullptr) shown.wr_id = group->srq->consume(slot);
  show(cq, *group, member, shown);
}

void collect_member(CompletionQueue& cq, int member) {
  ibv_wc batch[16];
  ibv_cq* real = cq.real[member];
  if (real == nullptr) return;
  if (member == kDefault && cq.is_ending && !SHIFT_PLANT(ending_queue_polled)) return;
  if (member == kDefault && cq.is_changing) {
    cq.is_passed_over = true;
    return;
  }
  const bool by_device = member == kDefault && cq.extended != nullptr && cq.extended->needs_device;
  WcExtra extra[16];
  for (;;) {
    const int got = by_device ? cq.extended->harvest(16, batch, extra)
                              : real->context->ops.poll_cq(real, 16, batch);
    for (int i = 0; i < got; i++) {
      take_completion(cq, member, {batch[i], by_device ? extra[i] : extra_now(cq)});
    }
    if (got < 16) break;
  }
}

// The order of the members means nothing: a group's completions come from one path at a time, and
// that path is drained before the next one gets its first request.
void collect(CompletionQueue& cq) {
  collect_member(cq, kDefault);
  if (!cq.poll_all) return;
  for (int member = kDefault + 1; member < cq.context->member_count; member++) {
    collect_member(cq, member);
  }
}

int take_side(CompletionQueue& cq, int count, ibv_wc* wc, WcExtra* extra) {
  const int got = std::min<int>(count, static_cast<int>(cq.side.size()));
  for (int i = 0; i < got; i++) {
    const Completion& from = cq.side[static_cast<size_t>(i)];
    wc[i] = from;
    if (extra != nullptr) extra[i] = from.extra;
  }
  cq.side.erase(cq.side.begin(), cq.side.begin() + got);
  cq.announced -= std::min(cq.announced, static_cast<size_t>(got));
  return got;
}

void put_side(CompletionQueue& cq, const ibv_wc& wc) {
  if (SHIFT_PLANT(lose_completion) && wc.status == IBV_WC_SUCCESS) {
    static bool once = true;
    if (std::exchange(once, false)) return;
  }
  cq.side.emplace_back(wc, extra_now(cq));
  doubt_events(cq);
  signal_side(cq);
}

void put_first(CompletionQueue& cq, const ibv_wc& wc) {
  std::lock_guard lock(cq.mutex);
  cq.bias.set_nobody();
  cq.side.emplace_front(wc, WcExtra{});
}

std::unique_lock<FairMutex> lock_poll(CompletionQueue& cq, bool share) {
  for (Backoff backoff;;) {
    auto lock = lock_queue(cq, share);
    if (cq.extended == nullptr || cq.extended->may_poll()) return lock;
    lock.unlock();
    backoff.wait();
  }
}

int poll_slow(CompletionQueue& cq, int count, ibv_wc* wc) {
  auto lock = lock_poll(cq, true);
  if (cq.extended != nullptr) cq.extended->put_back();
  if (cq.side.size() < static_cast<size_t>(count)) collect(cq);
  if (SHIFT_PLANT(completions_late) && event_clock() < cq.doubtful_until.load()) return 0;
  const int got = take_side(cq, count, wc);
  if (may_be_hot(cq)) cq.bias.adopt(&cq);
  return got;
}

int poll_error(CompletionQueue& cq, int count, ibv_wc* wc, WcExtra* extra, int from, int got) {
  // The mutex is locked before the section is left, so that no thread can poll younger completions
  // in between. (No thread waits for a section while it holds this mutex.) After the unlock the
  // section touches nothing more.
  std::lock_guard lock(cq.mutex);
  cq.bias.set_nobody();
  for (int i = from; i < got; i++) {
    take_completion(cq, kDefault, {wc[i], extra != nullptr ? extra[i] : WcExtra{}});
  }
  return from + take_side(cq, count - from, wc + from, extra != nullptr ? extra + from : nullptr);
}

void poll_error_extended(CompletionQueue& cq, const ibv_wc* wc, const WcExtra* extra, int from,
                         int got) {
  std::lock_guard lock(cq.mutex);
  cq.bias.set_nobody();
  const auto completion = [&](int i) {
    return Completion(wc[i], extra != nullptr ? extra[i] : WcExtra{});
  };
  for (int i = 0; i < from; i++) cq.side.push_back(completion(i));  // they are counted already
  for (int i = from; i < got; i++) take_completion(cq, kDefault, completion(i));
}

void purge(CompletionQueue& cq, Group* group, bool is_clean) {
  auto lock = lock_poll(cq);
  cq.last_qpn = UINT32_MAX;
  cq.last_counters = nullptr;
  if (!is_clean) collect(cq);
  if (cq.extended != nullptr) cq.extended->forget(group->qpn());
  const auto is_its = [&](const ibv_wc& wc) { return wc.qp_num == group->qpn(); };
  const auto announced_end = cq.side.begin() + static_cast<ptrdiff_t>(cq.announced);
  cq.announced -= static_cast<size_t>(std::count_if(cq.side.begin(), announced_end, is_its));
  std::erase_if(cq.side, is_its);
  kept_forget(cq, *group);
  std::erase(cq.groups, group);
  signal_side(cq);  // completions of other QPs have left the NIC, as in inspect()
}

void inspect(CompletionQueue& cq) {
  auto lock = lock_queue(cq);
  collect(cq);
  signal_side(cq);
}

}  // namespace shift::group

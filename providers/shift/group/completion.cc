#include "group/completion.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "group/completion_events.h"
#include "group/context.h"
#include "group/extended.h"
#include "group/fault_sink.h"
#include "group/flushed.h"
#include "group/group.h"
#include "group/port.h"
#include "group/shared_queue.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {

CompletionQueue::CompletionQueue() = default;
CompletionQueue::~CompletionQueue() {
  pthread_mutex_destroy(&cq.mutex);
  pthread_cond_destroy(&cq.cond);
}

bool is_path_error(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_WR_FLUSH_ERR:  // without an error before it: the NIC has taken the QP away
    case IBV_WC_FATAL_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return true;
    default:
      return false;
  }
}

namespace {

Group* group_of(Counters* counters) {
  return counters == nullptr ? nullptr
                             : reinterpret_cast<Group*>(reinterpret_cast<char*>(counters) -
                                                        offsetof(Group, counters));
}

// Either NIC may cause these. rxe gives IBV_WC_LOC_QP_OP_ERR when its link or address is gone; and
// a driver of the peer that lets go of its NIC destroys memory regions while QPs still answer.
bool is_doubtful(ibv_wc_status status) {
  return status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_REM_ACCESS_ERR ||
         status == IBV_WC_REM_OP_ERR;
}

// Whether the path may be to blame. If it is not, the request would fail on any other path, too. No
// error is believed of a NIC that is going, and a doubtful error is not believed the first time.
bool blames_path(const Group& group, int member, const ibv_wc& wc) {
  if (is_path_error(wc.status)) return true;
  const Errors::Doubt now{wc.wr_id, group.counters.done[0]};
  return (is_doubtful(wc.status) && group.life.errors.doubt != now) ||
         !member_port_is_up(*group.context, member);
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
        return group.life.errors.switching ||
               group.life.errors.members[member].accept != Accept::kGuard;
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

void translate(Group& group, ibv_wc& wc) {
  wc.qp_num = group.qpn();
  if (wc.src_qp != 0) wc.src_qp = group.life.ends.remote.qpn;
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

// What becomes of an error completion of a guarded path. The port is asked only once, because it
// may flap.
struct Verdict {
  bool blames_path = false;
  bool held_back = false;
};

Verdict judge(const Group& group, int member, const ibv_wc& wc) {
  const bool blames = blames_path(group, member, wc);
  return {blames, blames || group.life.errors.switching ||
                      group.life.errors.members[member].fault_reported};
}

void take_error(CompletionQueue& cq, Group& group, int member, Completion wc, Verdict verdict) {
  if (verdict.blames_path && is_doubtful(wc.status)) {
    group.life.errors.doubt = {wc.wr_id, group.counters.done[0]};
  }
  if (!verdict.held_back) {
    // The error is the application's own: it sees all completions from here on, as with the stock
    // library. This is not done if a flush of the same breakdown was polled first and held back:
    // then fail() gives all of them.
    group.life.errors.members[member].accept = Accept::kPass;
    group.life.errors.members[member].fault_reported = true;  // the flushes that follow are no news
    translate(group, wc);
    cq.side.push_back(wc);
    fault_sink->fault(&group, fsm::Event::kAppError, member, "application error completion");
    return;
  }
  doubt_events(cq);
  const bool first = !group.life.errors.members[member].fault_reported.exchange(true);
  // A flush says nothing of the cause. A path that was left, and the one that was taken since, may
  // both give errors; the first one is what the stock library would have shown.
  ibv_wc& original = group.life.errors.original;
  if (original.status == IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR) original = wc;
  if (!verdict.blames_path) {
    fault_sink->fault(&group, fsm::Event::kAppError, member,
                      "application error found while draining");
  } else if (first && !group.life.errors.switching) {
    fault_sink->fault(&group, fsm::Event::kPathFault, member,
                      {path_error_name(wc.status), Detector::kCompletion});
  }
}

}  // namespace

const char* path_error_name(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "transport retry exceeded";
    case IBV_WC_WR_FLUSH_ERR:
      return "flushed";
    case IBV_WC_FATAL_ERR:
      return "fatal error";
    case IBV_WC_RESP_TIMEOUT_ERR:
      return "response timeout";
    case IBV_WC_LOC_QP_OP_ERR:
      return "local operation error";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error";
    case IBV_WC_REM_ACCESS_ERR:
      return "remote access error";
    case IBV_WC_REM_OP_ERR:
      return "remote operation error";
    default:
      return "error completion";
  }
}

namespace {

void take_accepted(CompletionQueue& cq, Group& group, int member, const Completion& wc,
                   Verdict verdict);

}  // namespace

void take_completion(CompletionQueue& cq, int member, const Completion& wc) {
  Group* group = group_of(cq.context->members[member].qps.find(wc.qp_num));
  if (group == nullptr) {
    // On the default member the QP is one of the application's unprotected QPs, on another member
    // it belongs to a group that is destroyed.
    if (member != kDefault) return;
    Completion shown = wc;
    shown.wr_id = consume_unprotected(*cq.context, wc).value_or(wc.wr_id);
    cq.side.push_back(shown);
    return;
  }
  if (take_own(cq, *group, member, wc)) return;
  std::unique_lock error(group->errors_mutex, std::defer_lock);
  Verdict verdict;
  if (wc.status != IBV_WC_SUCCESS) {
    error.lock();
    if (group->life.errors.members[member].accept == Accept::kGuard)
      verdict = judge(*group, member, wc);
  }
  ReceiveSlot* slot =
      group->srq != nullptr && &cq == group->recv_cq ? group->srq->find(wc) : nullptr;
  if (wc.status != IBV_WC_SUCCESS && group->life.errors.members[member].accept == Accept::kGuard) {
    flush_note(cq, *group, wc, slot != nullptr);
  }
  if (slot != nullptr) {
    if (group->life.errors.members[member].accept == Accept::kDrop || verdict.held_back) {
      // A path that broke has taken the receive, and the application does not get it: it serves the
      // next message.
      group->srq->give_back(slot);
      if (!verdict.held_back) return;
    } else {
      Completion shown = wc;
      shown.wr_id = group->srq->consume(slot);
      return take_accepted(cq, *group, member, shown, verdict);
    }
  }
  take_accepted(cq, *group, member, wc, verdict);
}

namespace {

void take_accepted(CompletionQueue& cq, Group& group, int member, const Completion& wc,
                   Verdict verdict) {
  switch (group.life.errors.members[member].accept) {
    case Accept::kDrop:
      return;
    case Accept::kPass: {
      Completion copy = wc;
      if (copy.status == IBV_WC_SUCCESS) return take_success(cq, group, copy);
      translate(group, copy);
      cq.side.push_back(copy);
      // The application knows that this QP is broken, so nothing can be masked from now on.
      if (!group.life.errors.members[member].fault_reported.exchange(true)) {
        fault_sink->fault(&group, fsm::Event::kAppError, member, "an error while unprotected");
      }
      return;
    }
    case Accept::kGuard:
      if (wc.status == IBV_WC_SUCCESS) return take_success(cq, group, wc);
      return take_error(cq, group, member, wc, verdict);
  }
}

}  // namespace

void collect_member(CompletionQueue& cq, int member) {
  ibv_wc batch[16];
  ibv_cq* real = cq.real[member];
  if (real == nullptr) return;
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
  for (;;) {
    auto lock = lock_queue(cq, share);
    if (cq.extended == nullptr || cq.extended->may_poll()) return lock;
    lock.unlock();
    sched_yield();
  }
}

int poll_slow(CompletionQueue& cq, int count, ibv_wc* wc) {
  auto lock = lock_poll(cq, true);
  if (cq.extended != nullptr) cq.extended->put_back();
  if (cq.side.size() < static_cast<size_t>(count)) collect(cq);
  if (SHIFT_PLANT(completions_late) && is_in_doubt(cq)) return 0;
  const int got = take_side(cq, count, wc);
  if (cq.slow_groups == 0 && cq.side.empty()) cq.bias.adopt(&cq);
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

bool errors_hold(Group& group, int member) {
  CqLock lock(group);
  if (group.life.errors.members[member].accept == Accept::kPass &&
      group.life.errors.members[member].fault_reported)
    return false;
  if (group.life.errors.members[member].accept == Accept::kPass)
    group.life.errors.members[member].accept = Accept::kGuard;
  return true;
}

bool errors_pass(Group& group, int member) {
  if (member == kNoMember) return false;  // no path is committed, so no errors can come
  CqLock lock(group);
  if (group.life.errors.members[member].accept == Accept::kGuard &&
      group.life.errors.members[member].fault_reported)
    return false;
  if (group.life.errors.members[member].accept == Accept::kGuard)
    group.life.errors.members[member].accept = Accept::kPass;
  return true;
}

void purge(CompletionQueue& cq, Group* group) {
  auto lock = lock_poll(cq);
  cq.last_qpn = UINT32_MAX;
  cq.last_counters = nullptr;
  // Some NICs (rxe, siw) keep completions of a destroyed QP, the layer's markers among them.
  collect(cq);
  if (cq.extended != nullptr) cq.extended->forget(group->qpn());
  const auto is_its = [&](const ibv_wc& wc) { return wc.qp_num == group->qpn(); };
  const auto announced_end = cq.side.begin() + static_cast<ptrdiff_t>(cq.announced);
  cq.announced -= static_cast<size_t>(std::count_if(cq.side.begin(), announced_end, is_its));
  std::erase_if(cq.side, is_its);
  std::erase(cq.groups, group);
  signal_side(cq);  // completions of other QPs have left the NIC, as in inspect()
}

void inspect(CompletionQueue& cq) {
  auto lock = lock_queue(cq);
  collect(cq);
  signal_side(cq);
}

}  // namespace shift::group

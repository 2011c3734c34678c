#include "group/errors.h"

#include <algorithm>
#include <mutex>

#include "group/completion_events.h"
#include "group/context.h"
#include "group/fault_sink.h"
#include "group/group.h"
#include "group/shared_queue.h"
#include "util/planted.h"

namespace shift::group {

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

void translate(const Group& group, ibv_wc& wc) {
  wc.qp_num = group.qpn();
  if (wc.src_qp != 0) wc.src_qp = group.life.ends.remote.qpn;
}

namespace {

// Either NIC may cause these. rxe gives IBV_WC_LOC_QP_OP_ERR when its link or address is gone; and
// a driver of the peer that lets go of its NIC destroys memory regions while QPs still answer.
bool is_doubtful(ibv_wc_status status) {
  return status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_REM_ACCESS_ERR ||
         status == IBV_WC_REM_OP_ERR;
}

// Whether the path may be to blame, by all that can be known at once. If it is not, the request
// would fail on any other path, too. A doubtful error is not believed the first time, and a dead
// NIC never.
bool blames_path(Group& group, int member, const ibv_wc& wc) {
  if (is_path_error(wc.status)) return true;
  const Errors::Doubt now{wc.wr_id, group.counters.done[0]};
  const bool is_first = is_doubtful(wc.status) && group.life.errors.doubt != now;
  if (!is_first && !group.context->members[member].dead) return false;
  if (is_doubtful(wc.status)) group.life.errors.doubt = now;
  return true;
}

}  // namespace

void error_take(CompletionQueue& cq, Group& group, int member, const Completion& wc,
                ReceiveSlot* slot) {
  doubt_events(cq);
  Errors& errors = group.life.errors;
  const bool blames = blames_path(group, member, wc);
  const bool first = !errors.members[member].fault_reported.exchange(true);
  // A flush says nothing of the cause. A path that was left, and the one that was taken since, may
  // both give errors; the first one is what the stock library would have shown.
  if (errors.original.status == IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR)
    errors.original = wc;
  // If a flush of the same breakdown was polled first and held back, fail() gives all of them.
  if (first && !blames && !errors.switching) group.kept.is_open = true;
  if (group.kept.is_open) {
    group.kept.list.push_back({&cq, wc, slot});
    cq.kept_errors++;
  } else if (slot != nullptr) {
    // A path that broke has taken the receive, and the application does not get it: it serves the
    // next message.
    group.srq->give_back(slot);
  }
  if (!blames) {
    fault_sink->verdict_wanted(&group, member);
  } else if (first && !errors.switching) {
    fault_sink->fault(&group, fsm::Event::kPathFault, member,
                      {path_error_name(wc.status), Detector::kCompletion});
  }
}

void own_flush_take(CompletionQueue& cq, Group& group, int member) {
  std::lock_guard lock(group.errors_mutex);
  doubt_events(cq);
  if (group.life.errors.members[member].fault_reported.exchange(true)) return;
  fault_sink->fault(&group, fsm::Event::kPathFault, member,
                    {path_error_name(IBV_WC_WR_FLUSH_ERR), Detector::kCompletion});
}

bool errors_hold(Group& group, int member) {
  CqLock lock(group);
  auto& [accept, fault_reported] = group.life.errors.members[member];
  if (accept == Accept::kPass && fault_reported) return false;
  if (accept == Accept::kPass) accept = Accept::kGuard;
  return true;
}

bool errors_pass(Group& group, int member) {
  if (member == kNoMember) return false;  // no path is committed, so no errors can come
  if (kept_pass(group, member)) return true;
  CqLock lock(group);
  auto& [accept, fault_reported] = group.life.errors.members[member];
  if (accept == Accept::kGuard && fault_reported) return false;
  if (accept == Accept::kGuard) accept = Accept::kPass;
  return true;
}

bool kept_pass(Group& group, int member) {
  CqLock lock(group);
  if (group.life.errors.keeps_refused) return false;
  if (!group.kept.is_open.exchange(false)) return false;
  for (KeptErrors::Kept& kept : group.kept.list) {
    if (kept.slot != nullptr) kept.wc.wr_id = group.srq->consume(kept.slot);
    translate(group, kept.wc);
    if (!SHIFT_PLANT(kept_errors_lost)) kept.cq->side.push_back(kept.wc);
    kept.cq->kept_errors--;
  }
  group.kept.list.clear();
  // The application sees all completions from here on, as with the stock library; the flushes that
  // follow are no news.
  group.life.errors.members[member].accept = Accept::kPass;
  for (CompletionQueue* cq : {group.send_cq, group.recv_cq}) signal_side(*cq);
  return true;
}

void kept_hold_back(Group& group) {
  group.kept.is_open = false;
  for (const KeptErrors::Kept& kept : group.kept.list) {
    if (kept.slot != nullptr) group.srq->give_back(kept.slot);
    kept.cq->kept_errors--;
  }
  group.kept.list.clear();
}

void kept_forget(CompletionQueue& cq, Group& group) {
  std::lock_guard lock(group.errors_mutex);
  std::erase_if(group.kept.list, [&](const KeptErrors::Kept& kept) {
    if (kept.cq != &cq) return false;
    if (kept.slot != nullptr) (void)group.srq->consume(kept.slot);
    cq.kept_errors--;
    return true;
  });
  if (group.kept.list.empty()) group.kept.is_open = false;
}

}  // namespace shift::group

#include "group/fence.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "group/command_threads.h"
#include "group/completion.h"
#include "group/completion_events.h"
#include "group/context.h"
#include "group/fault_sink.h"
#include "group/flushed.h"
#include "group/group.h"
#include "group/member_qp.h"
#include "group/park.h"
#include "group/shared_queue.h"
#include "group/stock.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {
namespace {

// Much longer than a NIC needs for its flushes.
constexpr std::chrono::milliseconds kUrgePause{2};
// A step that comes later than this after the last one: the thread could not run.
constexpr std::chrono::milliseconds kStepMax{5};
// Most NICs have accepted ERR by then.
constexpr std::chrono::milliseconds kEarly{10};

// Has the NIC's command thread run it, or this thread, if there is no other.
std::shared_ptr<Fence::Command> command(Group& group, int member,
                                        std::function<void(Group&, Fence::Command&)> run) {
  auto made = std::make_shared<Fence::Command>();
  ++group.jobs;  // the application's thread does not destroy the QP meanwhile
  const auto task = [made, held = Held(&group), run = std::move(run)] {
    run(*held, *made);
    --held->jobs;
    made->done.store(true, std::memory_order_release);
  };
  if (!on_nic(*group.context, member, task)) task();
  return made;
}

bool is_done(const std::shared_ptr<Fence::Command>& command) {
  return command != nullptr && command->done.load(std::memory_order_acquire);
}

std::shared_ptr<Fence::Command> to_error(Group& group, int member) {
  return command(group, member, [member](Group& g, Fence::Command& out) {
    out.error = member_qp_to_state(g, member, IBV_QPS_ERR);
  });
}

// Brings some QPs of one NIC to ERR with one task.
class ErrorBatch {
 public:
  // More would keep the NIC's thread from other tasks for too long.
  static constexpr size_t kMost = 16;

  ErrorBatch(const Context* context, int member) : context_(context), member_(member) {}

  bool fits(const Group& group, int member) const {
    return group.context == context_ && member == member_ && count_ < kMost;
  }
  // Called on the control thread, before the batch is given to the NIC's thread. The returned
  // command lives as long as the batch.
  Fence::Command* add(Group& group) {
    ++group.jobs;  // the application's thread does not destroy the QP meanwhile
    groups_[count_] = Held(&group);
    return &commands_[count_++];
  }
  void run() {
    for (size_t i = 0; i < count_; i++) {
      commands_[i].error = member_qp_to_state(*groups_[i], member_, IBV_QPS_ERR);
      --groups_[i]->jobs;
      commands_[i].done.store(true, std::memory_order_release);
      groups_[i] = {};
    }
  }

 private:
  const Context* const context_;
  const int member_;
  size_t count_ = 0;
  std::array<Held<Group>, kMost> groups_;
  std::array<Fence::Command, kMost> commands_;
};

void give(const std::shared_ptr<ErrorBatch>& batch, Context& context, int member) {
  if (!on_nic(context, member, [batch] { batch->run(); })) batch->run();
}

}  // namespace

Fence::Fence(std::vector<Group*> groups, std::chrono::nanoseconds patience) {
  for (Group* group : groups) {
    entries_.push_back({.group = group, .member = group->life.path.member, .patience = patience});
    begin(entries_.back());
  }
  all_to_error();
}

// The QPs of one NIC go together.
void Fence::all_to_error() {
  std::vector<Entry*> left;
  for (Entry& entry : entries_)
    if (entry.goes_to_error) left.push_back(&entry);
  std::ranges::stable_sort(
      left, {}, [](const Entry* entry) { return std::pair(entry->group->context, entry->member); });
  std::shared_ptr<ErrorBatch> batch;
  for (size_t i = 0; i < left.size(); i++) {
    Group& group = *left[i]->group;
    const int member = left[i]->member;
    if (batch == nullptr) batch = std::make_shared<ErrorBatch>(group.context, member);
    left[i]->to_error = std::shared_ptr<Command>(batch, batch->add(group));
    const bool is_last =
        i + 1 == left.size() || !batch->fits(*left[i + 1]->group, left[i + 1]->member);
    if (is_last) give(std::exchange(batch, nullptr), *group.context, member);
  }
}

void Fence::begin(Entry& entry) {
  Group& group = *entry.group;
  if (entry.member == kNoMember) {
    entry.result = Result::kProven;
    return;
  }
  const int member = entry.member;
  if (group.is_homeless && member == kDefault) {
    // Nothing was ever posted there.
    CqLock lock(group);
    group.life.errors.members[member].accept = Accept::kDrop;
    group.life.path.member = kNoMember;
    entry.result = Result::kProven;
    return;
  }
  {
    CqLock lock(group);
    // The application has been given an error of its own in the meantime. That cannot be taken
    // back, and its completions after it are not counted.
    if (group.life.errors.members[member].accept == Accept::kPass) {
      entry.result = Result::kNotProven;
      return;
    }
    group.life.errors.switching = true;
    kept_hold_back(group);
  }
  if (SHIFT_PLANT(no_fence)) {
    for (CompletionQueue* cq : {group.send_cq, group.recv_cq}) {
      std::lock_guard lock(cq->mutex);
      collect(*cq);
    }
    CqLock lock(group);
    group.life.errors.switching = false;
    group.life.path.member = kNoMember;
    entry.result = Result::kProven;
    return;
  }
  receives_leave_begin(group);
  entry.goes_to_error = true;
  // A QP that never reached RTS has sent nothing, and providers refuse the marker on it.
  entry.marked_send = group.cap.max_send_wr == 0 || !group.life.members[member].can_send;
  // With a shared receive queue the QP has none of its own, though some providers (rxe) leave the
  // application's max_recv_wr as it is.
  entry.marked_recv = group.srq != nullptr || group.cap.max_recv_wr == 0;
  group.life.markers.drained[0] = entry.marked_send;
  group.life.markers.drained[1] = entry.marked_recv;
}

void Fence::take_answer(Entry& entry) {
  if (entry.answered || !is_done(entry.to_error)) return;
  Group& group = *entry.group;
  entry.answered = true;
  const int error = entry.to_error->error;
  entry.shut = entry.shut || error == 0;
  if (error == EIO || error == ENODEV) group.context->members[entry.member].dead.store(true);
  if (error != 0) SHIFT_DEBUG("qp 0x%x: old path to ERR: errno %d", group.qpn(), error);
}

// Posts the marker of the send queue, if the queue has room for it.
void Fence::post_send_marker(Entry& entry) {
  if (entry.marked_send) return;
  Group& group = *entry.group;
  ibv_qp* real = group.real[entry.member];
  ibv_send_wr wr{}, *bad = &wr;
  wr.wr_id = own_begin(group, entry.member, OwnRequest::Kind::kSendMarker);
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  entry.marked_send = real->context->ops.post_send(real, &wr, &bad) == 0;
  if (!entry.marked_send && bad != nullptr) own_refused(group, entry.member, wr.wr_id);
}

void Fence::post_recv_marker(Entry& entry) {
  if (entry.marked_recv) return;
  Group& group = *entry.group;
  ibv_qp* real = group.real[entry.member];
  ibv_recv_wr wr{}, *bad = &wr;
  wr.wr_id = own_begin(group, entry.member, OwnRequest::Kind::kRecvMarker);
  entry.marked_recv = real->context->ops.post_recv(real, &wr, &bad) == 0;
  if (!entry.marked_recv && bad != nullptr) own_refused(group, entry.member, wr.wr_id);
}

// A NIC whose commands hang may break the QP by itself, as when its requests are not acknowledged.
// The send marker shows that: it comes out with an error only when the QP is in ERR. If the QP
// works, the marker is an empty WRITE, which does nothing, and shows nothing. (A receive marker
// could be taken by the peer's next message.)
void Fence::try_early(Entry& entry, Clock::time_point now) {
  Group& group = *entry.group;
  if (entry.asked == Clock::time_point{}) entry.asked = now;
  if (now - entry.asked < kEarly || SHIFT_PLANT(fence_waits_for_command)) return;
  const bool has_queue = group.cap.max_send_wr != 0 && group.life.members[entry.member].can_send;
  if (!has_queue) return;
  if (group.life.markers.passed.exchange(false)) entry.marked_send = false;
  post_send_marker(entry);
  if (entry.marked_send && group.life.markers.drained[0]) entry.shut = true;
}

// Some NICs (rxe) flush when a QP enters ERR, and overlook receives that are posted to it later.
// Entering ERR once more makes them look.
void Fence::urge(Entry& entry, Clock::time_point now) {
  if (!entry.marked_send || !entry.marked_recv) return;
  if (entry.urge_at == Clock::time_point::min()) entry.urge_at = now + kUrgePause;
  if (now < entry.urge_at || !is_done(entry.to_error)) return;
  entry.urge_at = now + kUrgePause;
  // A device that has died meanwhile refuses; other functions find that out.
  entry.to_error = to_error(*entry.group, entry.member);
}

void Fence::go_on(Entry& entry, Clock::time_point now) {
  take_answer(entry);
  if (!entry.answered && !entry.shut) try_early(entry, now);
  if (!entry.shut) return;
  // The marker that was posted early may have come out before the QP was in ERR.
  if (entry.group->life.markers.passed.exchange(false)) entry.marked_send = false;
  post_send_marker(entry);
  post_recv_marker(entry);
  urge(entry, now);
}

namespace {

// The next PSN that the responder expects. It is final, because the QP answers nothing any more.
// Devices report it in ERR, too.
std::optional<uint32_t> responder_of(ibv_qp* real) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (stock->query_qp(real, &attr, IBV_QP_STATE | IBV_QP_RQ_PSN, &init) != 0 ||
      attr.qp_state != IBV_QPS_ERR) {
    return std::nullopt;
  }
  return attr.rq_psn & kPsnMask;
}

}  // namespace

// On a shared receive queue, LAST_WQE_REACHED stands for a marker: the device writes the
// completions of all receives that the QP has taken before it. Soft-RoCE (Linux 6.1) does not
// report it, but all work on a QP is over when a change to RESET returns. That change drops what is
// not flushed, so the send marker must come out first.
bool Fence::all_taken(Entry& entry) {
  Group& group = *entry.group;
  const int member = entry.member;
  if (group.srq == nullptr || group.life.members[member].last_taken) return true;
  if (!group.context->members[member].is_soft_roce || !entry.shut || !group.life.markers.drained[0])
    return false;
  if (entry.stop == nullptr) {
    entry.stop = command(
        group, member, [member](Group& g, Command& out) { out.error = member_qp_stop(g, member); });
  }
  if (!is_done(entry.stop)) return false;
  if (entry.stop->error != 0) {
    entry.stop = nullptr;  // it is tried again
    return false;
  }
  entry.stopped = group.life.members[member].last_taken = true;
  return true;
}

// Asks the NIC how far the responder got, if the peer wants to know. True: the answer is not there
// yet.
bool Fence::asks_responder(Entry& entry) {
  Group& group = *entry.group;
  const int member = entry.member;
  // A QP that has been in RESET says nothing of its connection any more.
  if (!entry.shut || entry.stopped || !group.life.control.asks_responder ||
      group.context->members[member].dead || is_late(*group.context, member)) {
    return false;
  }
  if (entry.question == nullptr) {
    entry.question = command(group, member, [member](Group& g, Command& out) {
      out.responder = responder_of(g.real[member]);
    });
  }
  if (!is_done(entry.question)) return true;
  entry.responder = entry.question->responder;
  return false;
}

bool Fence::step(Clock::time_point now) {
  const auto passed = last_step_ ? std::min<std::chrono::nanoseconds>(now - *last_step_, kStepMax)
                                 : std::chrono::nanoseconds::zero();
  last_step_ = now;
  std::vector<Group*> open;
  std::vector<bool> dead, taken;
  for (Entry& entry : entries_) {
    if (entry.group == nullptr || entry.result != Result::kOpen) continue;
    go_on(entry, now);
    open.push_back(entry.group);
    // Read before the CQs are emptied: a dead device writes no completion after it has reported its
    // death, so what is collected after that is all there will ever be.
    const int member = entry.member;
    dead.push_back(entry.group->context->members[member].dead.load());
    taken.push_back(all_taken(entry));
  }
  for (CompletionQueue* cq : cqs_of(open)) {
    std::lock_guard lock(cq->mutex);
    collect(*cq);
    signal_side(*cq);
  }
  size_t left = 0, i = 0;
  for (Entry& entry : entries_) {
    if (entry.group == nullptr || entry.result != Result::kOpen) continue;
    const auto& drained = entry.group->life.markers.drained;
    const bool is_drained = entry.shut && drained[0] && drained[1] && taken[i];
    if (entry.answered || entry.shut) entry.patience -= passed;
    if (dead[i++] || is_drained) {
      if (asks_responder(entry)) {
        left++;
      } else {
        end(entry, Result::kProven);
      }
    } else if ((entry.answered || entry.shut) &&
               entry.patience <= std::chrono::nanoseconds::zero()) {
      end(entry, Result::kNotProven);
    } else {
      left++;
    }
  }
  return left == 0;
}

namespace {

// Both markers have come out, so all flushes have.
void note_flushed(Group& group) {
  std::lock_guard send(group.send.mutex);
  std::lock_guard recv(group.recv.mutex);
  CqLock cqs(group);
  if (!group.life.markers.drained[0] || !group.life.markers.drained[1]) return;
  const auto flushed = first_flushed(group);
  if (!flushed) return;
  group.send.flushed_from = std::max(group.send.flushed_from, *flushed);
}

}  // namespace

void Fence::end(Entry& entry, Result result) {
  Group& group = *entry.group;
  entry.result = result;
  if (result == Result::kNotProven) {
    SHIFT_INFO_FEW("qp 0x%x: fence not proven: ERR %s, send queue %s, receive queue %s",
                   group.qpn(), entry.shut ? "entered" : "refused",
                   group.life.markers.drained[0] ? "drained"
                   : entry.marked_send           ? "not drained"
                                                 : "full",
                   group.life.markers.drained[1] ? "drained"
                   : entry.marked_recv           ? "not drained"
                                                 : "full");
  }
  const int member = entry.member;
  // A device that died may not have given all flushes.
  if (result == Result::kProven && entry.shut && group.life.markers.drained[0] &&
      group.life.members[member].can_send && !group.context->members[member].dead) {
    note_flushed(group);
  }
  {
    CqLock lock(group);
    // From now on any completion of the old path is of an old epoch (C8).
    group.life.errors.members[member].accept = Accept::kDrop;
    group.life.errors.switching = false;
    group.life.markers.under_way = 0;
    group.life.markers.posted = group.life.markers.awaited = group.life.markers.passed = false;
    group.life.opcode_of_signaled.clear();
    group.life.errors.flushed.clear();
    if (result == Result::kProven) group.life.path.member = kNoMember;
  }
  if (result != Result::kProven) return receives_leave_cancel(group);
  receives_leave(group);
  // The receive of a message that broke off is found only when all groups have left the member.
  if (entry.stopped) fault_sink->receives_stuck(group.srq, entry.member);
}

void Fence::forget(const Group* group) {
  for (Entry& entry : entries_) {
    if (entry.group != group) continue;
    // A group that fails may stay on its shared queue for long.
    receives_leave_cancel(*entry.group);
    entry.group = nullptr;
  }
}

}  // namespace shift::group

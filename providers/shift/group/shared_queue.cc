#include "group/shared_queue.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "group/command_threads.h"
#include "group/completion.h"
#include "group/context.h"
#include "group/domain.h"
#include "group/fault_sink.h"
#include "group/group.h"
#include "group/member_qp.h"
#include "group/stock.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {
namespace {

using SlotState = ReceiveSlot::State;

// This is apart, so that polling does not grow by it.
[[gnu::cold, gnu::noinline]] void tell_left_path(const char* device) {
  SHIFT_ERROR_LIMITED("%s: a receive was consumed on a path that had been left", device);
}

}  // namespace

SharedQueue::SharedQueue(Context& owner, uint32_t most, uint32_t most_sge)
    : context(owner), max_wr(std::max(most, 1u)), max_sge(std::max(most_sge, 1u)) {
  // Each member may hold as many stale receives as the application has outstanding.
  slot_count = max_wr * static_cast<uint32_t>(owner.member_count + 1);
  slots = std::make_unique<ReceiveSlot[]>(slot_count);
  sges = std::make_unique<ibv_sge[]>(size_t{slot_count} * max_sge);
  free.reserve(slot_count);
  for (uint32_t i = slot_count; i > 0; i--) free.push_back(&slots[i - 1]);
  if (getrandom(&first_wr_id, sizeof first_wr_id, GRND_NONBLOCK) != sizeof first_wr_id) {
    first_wr_id = reinterpret_cast<uintptr_t>(this) * 0x9e3779b97f4a7c15;
  }
}

SharedQueue::~SharedQueue() {
  pthread_mutex_destroy(&srq.mutex);
  pthread_cond_destroy(&srq.cond);
}

bool SharedQueue::claim(bool is_protected) {
  std::lock_guard lock(mutex);
  if (is_protected ? is_stock : users != 0) return false;
  if (is_protected) {
    users++;
  } else {
    is_stock = true;
  }
  return true;
}

ReceiveSlot* SharedQueue::find(const ibv_wc& wc) const {
  if (wc.status == IBV_WC_SUCCESS && (wc.opcode & IBV_WC_RECV) == 0) return nullptr;
  const uint64_t place = wc.wr_id - first_wr_id;
  return place < slot_count ? &slots[place] : nullptr;
}

uint64_t SharedQueue::consume(ReceiveSlot* slot) {
  std::lock_guard lock(mutex);
  Member& at = members[slot->member];
  const bool is_live = slot->state == SlotState::kPosted;
  if (is_live) {
    at.posted--;
    live--;
  } else {
    at.stale--;
    tell_left_path(context.device->dev.name);
  }
  slot->state = SlotState::kFree;
  free.push_back(slot);
  if (members_used > 1) {
    at.claim = ++last_claim;
    ask_if_dry();
  }
  return slot->wr_id;
}

// The caller holds mutex.
void SharedQueue::wait_again(ReceiveSlot* slot) {
  slot->state = SlotState::kWaiting;
  const auto at = std::ranges::upper_bound(waiting, slot->order, {}, &ReceiveSlot::order);
  waiting.insert(at, slot);
}

void SharedQueue::give_back(ReceiveSlot* slot) {
  std::lock_guard lock(mutex);
  Member& at = members[slot->member];
  if (slot->state == SlotState::kStale) {
    at.stale--;
    slot->state = SlotState::kFree;
    free.push_back(slot);
    return;
  }
  at.posted--;
  wait_again(slot);
  // The default's SRQ takes the receive at once. A further member's is left to its command thread,
  // which may be in the middle of a recall.
  if (emptiest() == kDefault) {
    (void)bring_waiting();
  } else {
    ask_if_dry();
  }
}

// Receives that no group can consume any more go to members that are in use. The caller holds
// mutex.
void SharedQueue::abandon_unused() {
  if (members_used == 0) return;
  for (int m = 0; m < context.member_count; m++) {
    const Member& one = members[m];
    if (one.groups == 0 && one.posted != 0) abandon(m);
  }
}

void SharedQueue::abandon(int member) {
  Member& from = members[member];
  // A dead NIC's SRQ is never used again, so the slots there are free at once.
  const bool is_dead = context.members[member].dead;
  for (uint32_t i = 0; i < slot_count && from.posted > 0; i++) {
    ReceiveSlot& slot = slots[i];
    if (slot.state != SlotState::kPosted || slot.member != member) continue;
    ReceiveSlot* moved = &slot;
    if (!is_dead) {
      moved = free.back();
      free.pop_back();
      *moved = slot;
      std::copy_n(&sges[size_t{i} * max_sge], slot.num_sge,
                  &sges[static_cast<size_t>(moved - slots.get()) * max_sge]);
      slot.state = SlotState::kStale;
      from.stale++;
    }
    from.posted--;
    moved->state = SlotState::kWaiting;
    waiting.push_back(moved);
  }
  std::ranges::sort(waiting, {}, &ReceiveSlot::order);
}

// Makes the dry member's command thread look when a member in use runs dry. The caller holds mutex.
void SharedQueue::ask_if_dry() {
  const int dry = emptiest();
  if (dry == kNoMember || (recall_asked >> dry & 1) != 0) return;
  bool others_have = !waiting.empty(), others_have_one = false;
  for (const Member& one : members) {
    others_have |=
        one.posted / 4 > members[dry].posted || (one.posted > 1 && members[dry].posted == 0);
    others_have_one |= one.posted == 1 && members[dry].posted == 0;
  }
  if (others_have) return ask(dry);
  if (!others_have_one || takes_turns || SHIFT_PLANT(last_receive_stays)) return;
  takes_turns = true;
  fault_sink->receives_scarce(this);
}

SharedQueue::Join SharedQueue::join(int member) {
  std::lock_guard lock(mutex);
  if (!is_usable(member)) return Join::kUnusable;
  Member& to = members[member];
  if (to.groups++ == 0) members_used++;
  abandon_unused();
  const Obstacle in_the_way = post_waiting();
  const bool is_final = in_the_way.error != 0 && in_the_way.error != EAGAIN;
  if (is_final && in_the_way.member == member) {
    if (--to.groups == 0) members_used--;
    return in_the_way.error == ENOKEY ? Join::kKeyMissing : Join::kUnusable;
  }
  tell(in_the_way);
  if (limit_armed && limit != 0)
    (void)on_nic(context, member, [held = Held(this), member] { held->limit_renew(member); });
  if (members_used > 1) ask_if_dry();
  return Join::kDone;
}

void SharedQueue::leave_begin(Group& group) {
  std::lock_guard lock(mutex);
  if (group.srq_member == kNoMember || std::exchange(group.srq_leaves, true)) return;
  members[group.srq_member].leaving++;
}

void SharedQueue::leave_cancel(Group& group) {
  std::lock_guard lock(mutex);
  if (!std::exchange(group.srq_leaves, false)) return;
  members[group.srq_member].leaving--;
  if (members_used > 1) ask_if_dry();
}

void SharedQueue::leave(Group& group) {
  std::lock_guard lock(mutex);
  const int member = group.srq_member.exchange(kNoMember);
  if (member == kNoMember) return;
  if (std::exchange(group.srq_leaves, false)) members[member].leaving--;
  if (--members[member].groups != 0) return;
  members_used--;
  abandon_unused();
  (void)bring_waiting();
}

void SharedQueue::limit_renew(int member) {
  std::unique_lock changing(limit_mutex, std::defer_lock);
  if (member == kDefault) changing.lock();
  ibv_srq_attr attr{};
  ibv_srq* real;
  {
    std::lock_guard lock(mutex);
    const bool is_used = members[member].groups != 0 || (members_used == 0 && member == kDefault);
    if (!is_used) return;
    attr.srq_limit = limit_armed ? limit : 0;
    real = members[member].real;
  }
  if (real != nullptr) (void)stock->modify_srq(real, &attr, IBV_SRQ_LIMIT);
}

// Only the default's answer counts. The further members are told later, and so is a default NIC
// that is late.
int SharedQueue::limit_set(uint32_t value) {
  int error = 0;
  const bool asks_default = !is_late(context, kDefault);
  std::unique_lock changing(limit_mutex, std::defer_lock);
  if (asks_default) changing.lock();
  bool is_default_used;
  {
    std::lock_guard lock(mutex);
    limit_armed = value != 0;
    limit = value;
    is_default_used = members[kDefault].groups != 0 || members_used == 0;
  }
  if (is_default_used && asks_default) {
    ibv_srq_attr attr{.srq_limit = value};
    error = stock->modify_srq(members[kDefault].real, &attr, IBV_SRQ_LIMIT);
    if (context.members[kDefault].dead) error = 0;
  }
  if (asks_default) changing.unlock();
  if (error != 0) limit_armed = false;
  const int first = asks_default ? kDefault + 1 : kDefault;
  for (int m = first; m < context.member_count && error == 0; m++)
    (void)on_nic(context, m, [held = Held(this), m] { held->limit_renew(m); });
  return error;
}

SharedQueue::Join receives_join(Group& group, int member) {
  if (group.srq == nullptr || group.srq_member == member) return SharedQueue::Join::kDone;
  const auto result = group.srq->join(member);
  if (result == SharedQueue::Join::kDone) group.srq_member = member;
  return result;
}

void receives_leave_begin(Group& group) {
  if (group.srq != nullptr) group.srq->leave_begin(group);
}

void receives_leave_cancel(Group& group) {
  if (group.srq != nullptr) group.srq->leave_cancel(group);
}

void receives_leave(Group& group) {
  if (group.srq != nullptr) group.srq->leave(group);
}

void receives_settle(Group& group, int first, int end) {
  if (group.srq == nullptr) return;
  for (int m = first; m < end; m++) {
    // A dead device refuses ERR, but it takes no receives either.
    (void)member_qp_shut(group, m);
  }
  auto lock = lock_poll(*group.recv_cq);
  collect(*group.recv_cq);
}

std::optional<uint64_t> consume_unprotected(Context& context, const ibv_wc& wc) {
  SharedQueue* queue = nullptr;
  ReceiveSlot* slot = nullptr;
  {
    std::lock_guard lock(context.mutex);
    for (SharedQueue* candidate : context.srqs) {
      if (ReceiveSlot* found = candidate->find(wc)) queue = candidate, slot = found;
    }
  }
  // The queue still exists: no thread destroys a queue while completions of its QPs are taken.
  if (slot == nullptr) return std::nullopt;
  return queue->consume(slot);
}

void receives_last_taken(Group& group, int member) {
  group.life.members[member].last_taken = true;
  // A group that failed without a fence, or whose QP the application has shut, has waited for this.
  const bool is_over = group.life.control.state == fsm::State::kFailed ||
                       group.life.control.state == fsm::State::kClosed;
  if (group.srq_member != member || !is_over) return;
  inspect(*group.recv_cq);
  receives_leave(group);
}

}  // namespace shift::group

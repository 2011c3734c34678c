// Decides on which member's SRQ the receives of a shared queue are posted, and posts them.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "group/context.h"
#include "group/fault_sink.h"
#include "group/group.h"
#include "group/keys.h"
#include "group/shared_queue.h"
#include "util/log.h"

namespace shift::group {
namespace {

using SlotState = ReceiveSlot::State;

constexpr int kChain = 16;

}  // namespace

bool SharedQueue::is_usable(int member) const {
  return members[member].real != nullptr && members[member].stale == 0 &&
         !context.members[member].dead;
}

// Where the next receive goes: to the member in use that has the fewest, or to the default while no
// QP is connected. kNoMember: the receive has to wait.
int SharedQueue::emptiest() const {
  if (members_used == 0) return is_usable(kDefault) ? kDefault : kNoMember;
  int found = kNoMember;
  for (int m = 0; m < context.member_count; m++) {
    const Member& one = members[m];
    if (one.groups == 0 || !is_usable(m)) continue;
    const bool is_better =
        found == kNoMember || one.posted < members[found].posted ||
        (one.posted == members[found].posted && one.claim > members[found].claim);
    if (is_better) found = m;
  }
  return found;
}

// Posts waiting slots, at most kChain, on the member's SRQ, as far as their keys are known there.
// Returns 0, EAGAIN (the next slot's region is still being registered there), ENOKEY (it is not
// registered there) or the errno of the call; slots that were not taken still wait. This does not
// wait for a registration: the command thread, which registers, wants the mutex, too.
int SharedQueue::post_to(int member, ReceiveSlot* const* list, int count) {
  Member& to = members[member];
  ibv_recv_wr wrs[kChain];
  ibv_sge translated[kChain][kMaxSge];
  KeyState state = KeyState::kReady;
  int known = 0;
  for (; known < count; known++) {
    ReceiveSlot* slot = list[known];
    ibv_sge* own = &sges[static_cast<size_t>(slot - slots.get()) * max_sge];
    if (member != kDefault) {
      std::copy_n(own, slot->num_sge, translated[known]);
      own = translated[known];
      state = translate_local(context, member, own, slot->num_sge);
      if (state != KeyState::kReady) break;
    }
    wrs[known] = {first_wr_id + static_cast<uint64_t>(slot - slots.get()), nullptr, own,
                  slot->num_sge};
    if (known > 0) wrs[known - 1].next = &wrs[known];
  }
  if (known > 0) {
    ibv_recv_wr* bad = nullptr;
    const int error = to.real->context->ops.post_srq_recv(to.real, wrs, &bad);
    const int taken = error == 0 ? known : static_cast<int>(bad - wrs);
    for (int i = 0; i < taken; i++) {
      list[i]->state = SlotState::kPosted;
      list[i]->member = static_cast<uint8_t>(member);
      to.posted++;
    }
    if (error != 0) return error;
  }
  return state == KeyState::kReady ? 0 : state == KeyState::kPending ? EAGAIN : ENOKEY;
}

SharedQueue::Obstacle SharedQueue::post_waiting() {
  while (!waiting.empty()) {
    const int to = emptiest();
    if (to == kNoMember) break;
    ReceiveSlot* list[kChain];
    const int most = members_used > 1 ? 1 : kChain;
    const int count = std::min<int>(most, static_cast<int>(waiting.size()));
    std::copy_n(waiting.begin(), count, list);
    const int error = post_to(to, list, count);
    while (!waiting.empty() && waiting.front()->state == SlotState::kPosted) waiting.pop_front();
    if (error == EAGAIN) ask(to);  // its command thread goes on after the registration
    if (error != 0) return {error, to};
  }
  return {};
}

// Reports the obstacle. Later receives wait, too, so QPs that can consume there would starve, and
// nothing else would show it. The caller holds mutex.
void SharedQueue::tell(const Obstacle& in_the_way) {
  switch (in_the_way.error) {
    case 0:
    case EAGAIN:
      break;
    case ENOKEY:
      fault_sink->receives_refused(this, in_the_way.member);
      break;
    default:
      SHIFT_WARN_LIMITED("%s: member %d: a shared receive cannot be posted: errno %d",
                         context.device->dev.name, in_the_way.member, in_the_way.error);
      fault_sink->receives_stuck(this, in_the_way.member);
  }
}

bool SharedQueue::bring_waiting() {
  const Obstacle in_the_way = post_waiting();
  tell(in_the_way);
  return in_the_way.error == 0;
}

// Whether a group off the default could not get this receive, because a region is missing there.
bool SharedQueue::names_missing(const ibv_recv_wr& wr) const {
  for (int m = kDefault + 1; m < context.member_count; m++) {
    if (members[m].groups == 0) continue;
    ibv_sge copy[kMaxSge];
    std::copy_n(wr.sg_list, wr.num_sge, copy);
    if (translate_local(context, m, copy, wr.num_sge) == KeyState::kMissing) return true;
  }
  return false;
}

// Makes the member's command thread call recall_some(). The caller holds mutex.
void SharedQueue::ask(int member) {
  const uint32_t bit = 1u << member;
  if ((recall_asked & bit) != 0) return;
  recall_asked |= bit;
  fault_sink->receives_wanted(this, member);
}

int SharedQueue::post(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  std::lock_guard lock(mutex);
  while (wr != nullptr) {
    ReceiveSlot* list[kChain];
    ibv_recv_wr* first = wr;
    int count = 0, error = 0;
    const bool off_default = members_used != (members[kDefault].groups != 0 ? 1 : 0);
    for (; wr != nullptr && count < kChain; wr = wr->next, count++) {
      if (wr->num_sge < 0 || static_cast<uint32_t>(wr->num_sge) > max_sge) error = EINVAL;
      if (live == max_wr || free.empty()) error = ENOMEM;
      if (error == 0 && off_default && names_missing(*wr)) error = EINVAL;
      if (error != 0) break;
      ReceiveSlot* slot = free.back();
      free.pop_back();
      *slot = {.state = SlotState::kWaiting,
               .num_sge = wr->num_sge,
               .wr_id = wr->wr_id,
               .order = next_order++};
      std::copy_n(wr->sg_list, wr->num_sge,
                  &sges[static_cast<size_t>(slot - slots.get()) * max_sge]);
      list[count] = slot;
      live++;
    }
    if (!off_default && waiting.empty() && emptiest() == kDefault && count > 0) {
      const int refused = post_to(kDefault, list, count);
      for (int i = count; refused != 0 && i > 0 && list[i - 1]->state == SlotState::kWaiting; i--) {
        list[i - 1]->state = SlotState::kFree;
        free.push_back(list[i - 1]);
        live--;
        count--;
      }
      if (refused != 0) {
        for (; count > 0; count--) first = first->next;
        *bad = first;
        return refused;
      }
    } else {
      waiting.insert(waiting.end(), list, list + count);
      (void)bring_waiting();
      ask_if_dry();
    }
    if (error != 0) {
      *bad = wr;
      return error;
    }
  }
  return 0;
}

}  // namespace shift::group

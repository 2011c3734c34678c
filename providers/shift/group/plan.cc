#include "group/plan.h"

#include <algorithm>
#include <optional>

#include "group/group.h"
#include "util/planted.h"

namespace shift::group {
namespace {

// The position after the last notification that the peer has counted: RC executes in order, so all
// WRs before it were executed. nullopt: this counter is impossible.
std::optional<uint64_t> executed_by_count(const SendJournal& journal, const Plan& plan,
                                          uint32_t peer) {
  uint32_t completed = journal.notifications_posted();
  if (plan.first != plan.end) {
    const SendEntry& entry = journal.at(plan.first);
    completed = entry.notification_total - is_notification(entry.opcode);
  }
  // A peer cannot have received fewer messages than it acknowledged, nor more than were posted
  // (C11).
  if (static_cast<int32_t>(peer - completed) < 0 ||
      static_cast<int32_t>(journal.notifications_posted() - peer) < 0) {
    return std::nullopt;
  }
  uint64_t executed = plan.first;
  if (SHIFT_PLANT(counter_ignored)) return executed;
  for (uint64_t position = plan.first; position < plan.end; position++) {
    const SendEntry& entry = journal.at(position);
    if (!is_notification(entry.opcode)) continue;
    if (static_cast<int32_t>(entry.notification_total - peer) > 0) break;
    executed = position + 1;
  }
  if (SHIFT_PLANT(replay_delivered) && executed > plan.first) executed--;
  return executed;
}

// The last executed request with a fence flag. It did not begin before all READs and atomics in
// front of it had ended (IBA 10.8.3.3).
uint64_t fenced_by(const SendJournal& journal, const Plan& plan) {
  const bool in_part = plan.executed.packets != 0;
  for (uint64_t end = plan.executed.position + in_part; end > plan.first; end--) {
    if (journal.at(end - 1).send_flags & IBV_SEND_FENCE) return end - 1;
  }
  return plan.first;
}

// The position after the last atomic that a path is known to have completed. With it, all before it
// was completed, as if the atomic had had a signal. But if a notification before it is not among
// those that the peer has counted, the peer's NIC has died without telling of it, and then nothing
// is known of the atomic for this rule.
uint64_t atomics_over(const Group& group, const Plan& plan) {
  const SendJournal& journal = group.send.journal;
  uint64_t over = plan.first;
  for (uint64_t i = plan.first; i < std::min(group.send.flushed_from, plan.end); i++) {
    const uint32_t opcode = journal.at(i).opcode;
    if (is_notification(opcode) && i >= plan.executed.position) break;
    if (is_atomic(opcode)) over = i + 1;
  }
  return over;
}

// How many notifications lie before that position, as the peer counts them.
uint32_t notifications_before(const SendJournal& journal, uint64_t position) {
  if (position == journal.head()) return journal.notifications_posted();
  const SendEntry& entry = journal.at(position);
  return entry.notification_total - is_notification(entry.opcode);
}

bool moves_bytes(const SendJournal& journal, uint64_t position) {
  ibv_send_wr wr;
  ibv_sge sges[kMaxSge];
  journal.rebuild(position, &wr, sges);
  return std::any_of(sges, sges + wr.num_sge, [](const ibv_sge& sge) { return sge.length != 0; });
}

// For the mode exact, when the responder has said nothing: a WR that is not proven executed must
// not run again, if it does harm. Returns why the group cannot go on, or nullptr.
const char* unproven(const SendJournal& journal, const Plan& plan, uint64_t posted) {
  for (uint64_t position = plan.executed.position; position < posted; position++) {
    const uint32_t opcode = journal.at(position).opcode;
    // This includes requests after a notification that was not counted: a NIC that died may have
    // executed it without saying so.
    if (is_atomic(opcode)) return "nothing proves whether an atomic was executed";
    if (opcode == IBV_WR_RDMA_WRITE && moves_bytes(journal, position)) {
      return "nothing proves whether a WRITE was executed";
    }
  }
  return nullptr;
}

// For modes that ask the responder: what its packet number says of the WRs that were posted.
// Returns why the group cannot go on, or nullptr.
const char* refine(const Group& group, Plan& plan) {
  const SendJournal& journal = group.send.journal;
  const uint64_t posted = std::min(group.send.posted, plan.end);
  // WRs that a path was known to have executed stay executed.
  if (!SHIFT_PLANT(executed_forgotten)) {
    plan.executed = std::max(plan.executed, group.send.executed);
  }
  if (plan.first >= posted) return nullptr;  // no request was under way
  const SentPackets& sent = group.send.sent;
  const bool known = group.life.control.peer_responder && sent.known &&
                     numbers_differ(journal, sent, plan.first, posted) &&
                     !(SHIFT_PLANT(auto_hears_nothing) && !group.needs_proof());
  plan.knows_atomics = known || group.needs_proof() || SHIFT_PLANT(auto_repeats_atomics);
  if (!known) {
    // In the mode auto the plan is that of the mode relaxed, but for what is proven already.
    if (!group.needs_proof() && !SHIFT_PLANT(auto_needs_proof)) return nullptr;
    return SHIFT_PLANT(unknown_is_unexecuted) ? nullptr : unproven(journal, plan, posted);
  }
  const auto executed =
      executed_before(journal, sent, plan.first, posted, *group.life.control.peer_responder);
  const Executed doubtful{plan.first, 0};
  if (!executed && SHIFT_PLANT(auto_bears_doubt) && !group.needs_proof()) return nullptr;
  if (!executed) {
    plan.executed = doubtful;
    return "the peer's packet number contradicts what was posted and acknowledged";
  }
  if (notifications_before(journal, executed->position) !=
          static_cast<uint32_t>(group.life.control.peer_received) &&
      !SHIFT_PLANT(count_not_compared)) {
    plan.executed = doubtful;
    return "the peer's counter and its packet number contradict each other";
  }
  plan.executed = *executed;
  return nullptr;
}

// C5 and the limits of replay, checked before anything is done. Returns the reason, or nullptr.
const char* refusal(const Group& group, const Plan& plan) {
  const SendJournal& journal = group.send.journal;
  for (uint64_t position = plan.first; position < plan.end; position++) {
    const uint32_t opcode = journal.at(position).opcode;
    if (is_atomic(opcode) && position >= plan.fenced && position < group.send.posted) {
      if (!plan.knows_atomics) return "an atomic is in flight and its outcome unproven";
      if (position < plan.executed.position && !SHIFT_PLANT(atomic_result_made_up)) {
        return "an atomic was executed, and its result is lost";
      }
    }
    // If the request was posted, it is not known whether the window has changed.
    if (is_window_request(opcode) &&
        (position < group.send.posted || names_other_nic(group, opcode))) {
      return "a memory window operation cannot be moved to another NIC";
    }
    if (opcode > IBV_WR_SEND_WITH_INV) return "a special request cannot be moved to another NIC";
  }
  return nullptr;
}

}  // namespace

bool names_other_nic(const Group& group, uint32_t opcode) {
  if (!is_window_request(opcode)) return false;
  return (opcode == IBV_WR_SEND_WITH_INV ? group.life.path.peer_member
                                         : group.life.path.member.load()) != kDefault;
}

Plan make_plan(const Group& group) {
  const SendJournal& journal = group.send.journal;
  Plan plan;
  plan.end = journal.head();
  plan.first = std::max(journal.first_incomplete(static_cast<uint32_t>(group.counters.done[0])),
                        group.send.drained_to);
  plan.executed.position = plan.first;
  const bool is_known = plan.first >= journal.known_from() || plan.first == plan.end;
  if (!is_known && !SHIFT_PLANT(unreadable_ignored)) {
    plan.refusal = "what was posted cannot be read from the NIC's queue";
    return plan;
  }
  const auto counted =
      executed_by_count(journal, plan, static_cast<uint32_t>(group.life.control.peer_received));
  if (!counted) {
    plan.refusal = "the peer's counter contradicts what was posted and acknowledged";
    return plan;
  }
  plan.executed.position = *counted;
  const uint64_t over = atomics_over(group, plan);
  plan.executed.position = std::max(*counted, over);
  if (group.asks_responder()) plan.refusal = refine(group, plan);
  if (plan.refusal == nullptr && plan.executed.position < over) {
    plan.refusal = "the peer's packet number contradicts what the NIC has completed";
  }
  plan.fenced = std::max(fenced_by(journal, plan), over);
  if (plan.refusal == nullptr) plan.refusal = refusal(group, plan);
  return plan;
}

}  // namespace shift::group

#include "group/completion_events.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "group/completion.h"
#include "group/context.h"
#include "group/extended.h"
#include "group/group.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {

void CompletionChannel::owe(CompletionQueue& cq, std::chrono::steady_clock::time_point at,
                            bool unarmed) {
  std::lock_guard lock(mutex);
  const auto known = std::ranges::find(owed, &cq, &Owed::cq);
  if (known != owed.end()) {
    at = std::min(at, known->at);
    unarmed = unarmed || known->unarmed;
    owed.erase(known);
  }
  owe_once({&cq, at, event_clock() + kOwedToWaiter, unarmed});
}

void CompletionChannel::owe_once(const Owed& one) {
  owed.insert(std::ranges::upper_bound(owed, one.at, {}, &Owed::at), one);
}

bool CompletionChannel::owes(const CompletionQueue& cq) {
  std::lock_guard lock(mutex);
  return std::ranges::any_of(owed, [&cq](const Owed& one) { return one.cq == &cq; });
}

namespace {

// Counts what has come for the application.
uint64_t seen_on(const CompletionQueue& cq) {
  uint64_t seen = cq.unprotected.done[0] + cq.unprotected.done[1];
  for (const Group* group : cq.groups) {
    if (group->send_cq == &cq) seen += group->counters.done[0];
    if (group->recv_cq == &cq) seen += group->counters.done[1];
  }
  return seen;
}

// Whether the group has met an error of its path, or has left it, and does not go on yet.
bool is_leaving(const Group& group) {
  const int member = group.life.path.member;
  if (member == kNoMember || group.life.errors.switching) return true;
  const auto& errors = group.life.errors.members[member];
  return errors.fault_reported && errors.accept == Accept::kGuard;
}

}  // namespace

bool is_premature(CompletionQueue& cq, const CompletionChannel::Owed& owed) {
  if (!cq.armed || SHIFT_PLANT(event_before_completion)) return false;
  if (!cq.channel->is_waited_on && !SHIFT_PLANT(looks_unnoticed)) return false;
  std::lock_guard lock(cq.mutex);
  const bool is_early = event_clock() < owed.last;
  return std::ranges::any_of(cq.groups, [&cq, is_early](const Group* group) {
    const auto done = static_cast<uint32_t>(group->counters.done[0]);
    const bool awaits = group->send_cq == &cq && !group->life.errors.are_given &&
                        group->send.journal.signaled() != done;
    return awaits && (is_early || is_leaving(*group));
  });
}

bool is_announcing(CompletionQueue& cq) {
  const std::lock_guard lock(cq.mutex);  // signal_side() disarms the queue and raises under it
  const std::lock_guard events(cq.channel->mutex);
  return std::ranges::find(cq.channel->injected, &cq) != cq.channel->injected.end();
}

bool is_in_doubt(const CompletionQueue& cq) {
  constexpr std::chrono::steady_clock::time_point kNever{};
  return cq.doubtful_until.load(std::memory_order_relaxed) != kNever;
}

void doubt_events(CompletionQueue& cq) {
  // An event comes at once; the time is for a program that asks for events late.
  constexpr std::chrono::milliseconds kDoubt{500};
  if (cq.channel == nullptr && !SHIFT_PLANT(completions_late)) return;
  if (!is_in_doubt(cq)) {
    cq.seen_at_arming = seen_on(cq);
    cq.events_open = 0;
  }
  cq.doubtful_until.store(event_clock() + kDoubt, std::memory_order_relaxed);
}

void surplus_noticed(CompletionQueue& cq) {
  std::lock_guard lock(cq.mutex);
  // (What event_kept_long keeps back is no surplus, and the doubt would never end.)
  if (SHIFT_PLANT(surplus_unnoticed) || SHIFT_PLANT(event_kept_long)) return;
  doubt_events(cq);
}

namespace {

bool is_time_over(const CompletionQueue& cq) {
  return event_clock() >= cq.doubtful_until.load(std::memory_order_relaxed);
}

// The time is over, and no event is left that one of another NIC has stood for.
bool is_doubt_over(const CompletionQueue& cq) {
  if (!is_time_over(cq)) return false;
  pollfd readable{cq.channel->channel.fd, POLLIN, 0};
  return poll(&readable, 1, 0) == 0 || SHIFT_PLANT(doubt_just_ends);
}

}  // namespace

void note_arming(CompletionQueue& cq) {
  std::lock_guard lock(cq.mutex);
  if (is_doubt_over(cq)) return cq.doubtful_until.store({}, std::memory_order_relaxed);
  // What has come since the last arming has raised an event.
  const uint64_t seen = seen_on(cq);
  if (std::exchange(cq.seen_at_arming, seen) != seen && !cq.armed_solicited) cq.events_open++;
}

bool is_event_open(CompletionQueue& cq) {
  std::lock_guard lock(cq.mutex);
  if (SHIFT_PLANT(event_kept_long)) return false;
  if (cq.events_open > 0) return true;
  // It is not known which completions were solicited. Without one, no NIC raises an event, so a
  // late one is hardly too many; and a program that has polled the completion itself may count on
  // it.
  if (cq.armed_solicited) return is_time_over(cq) && !SHIFT_PLANT(solicited_kept);
  return seen_on(cq) != cq.seen_at_arming;
}

namespace {

// A NIC raises an event for the first completion that meets an armed queue. Those behind it wait
// for the next arming.
void announce_next(CompletionQueue& cq) {
  const size_t told = SHIFT_PLANT(event_tells_all) ? cq.side.size() : cq.announced + 1;
  cq.announced = std::min(cq.side.size(), told);
}

}  // namespace

bool has_news(CompletionQueue& cq) {
  auto lock = lock_queue(cq);
  if (cq.extended != nullptr) {
    if (!cq.extended->may_poll()) return true;  // the thread that polls knows more
    cq.extended->put_back();
  }
  if (cq.side.size() <= cq.announced) collect(cq);
  return cq.side.size() > cq.announced;
}

void event_given(CompletionQueue& cq, bool is_announced) {
  std::lock_guard lock(cq.mutex);
  if (!is_announced) announce_next(cq);
  if (!is_in_doubt(cq)) return;
  if (cq.events_open > 0) {
    cq.events_open--;
  } else {
    cq.seen_at_arming = seen_on(cq);
  }
}

void owe_event(CompletionQueue& cq) {
  std::lock_guard lock(cq.mutex);
  const bool is_settled =
      std::ranges::none_of(cq.groups, [](const Group* g) { return is_leaving(*g); });
  const bool is_soon = is_settled && !SHIFT_PLANT(event_kept_long);
  cq.channel->owe(cq, event_clock() + (is_soon ? kOwedSettled : kOwedAtMost));
}

void owed_events_settle(CompletionQueue& cq) {
  if (cq.channel == nullptr || !cq.channel->owes(cq) || SHIFT_PLANT(event_kept_long)) return;
  cq.channel->owe(cq, event_clock() + kOwedSettled);
}

void signal_side(CompletionQueue& cq) {
  if (cq.channel == nullptr || cq.is_ending || cq.side.size() <= cq.announced ||
      !cq.armed.exchange(false)) {
    return;
  }
  announce_next(cq);
  doubt_events(cq);  // the NIC may be about to raise its own event for them
  std::lock_guard lock(cq.channel->mutex);
  cq.channel->injected.push_back(&cq);
  const uint64_t one = 1;
  if (write(cq.channel->inject_fd, &one, sizeof one) < 0) {
    SHIFT_WARN_LIMITED("completion channel %d: event not raised", cq.channel->channel.fd);
  }
}

void signal_left(CompletionQueue& cq) {
  signal_side(cq);
  cq.announced = cq.side.size();
}

}  // namespace shift::group

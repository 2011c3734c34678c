// Completion events: which of them the application gets while the layer keeps completions back, and
// events of the layer's own. `cq.mutex` always is CompletionQueue::mutex.
#pragma once

#include <sys/epoll.h>

#include <chrono>

#include "group/completion_queue.h"

namespace shift::group {

// Raises an event of the layer's own if the application waits for one, and the side queue holds
// completions that no event has announced; it announces the first of them. The caller holds
// cq.mutex.
void signal_side(CompletionQueue& cq);
// The application has asked for an event, perhaps while the side queue holds completions that no
// event has announced. A NIC raises an event for such completions at once, which announces all of
// them, and a program that polls once for each event counts on it. The caller holds cq.mutex.
[[gnu::cold]] void signal_left(CompletionQueue& cq);
// Whether a poll would find a completion that no event has announced. Removes what a masked fault
// has left in the queue. Without this question a program could wait for ever that counts on one
// event for each completion and waits again without a poll (perftest does, with two queues on a
// channel).
[[gnu::cold]] bool has_news(CompletionQueue& cq);
// The application gets an event. It announces the next completion in the side queue, unless
// `is_announced`: it is the layer's own, which did so when it was raised.
[[gnu::cold]] void event_given(CompletionQueue& cq, bool is_announced);

// The clock for events that are kept back; tests stop it.
inline std::chrono::steady_clock::time_point (*event_clock)() = &std::chrono::steady_clock::now;
// Notes that the NIC may have raised events for completions that are not the application's, or that
// another event has announced. The doubt ends at an arming, a while later, that finds no event left
// on the channel. It does not just end: when the event of another NIC stood for a completion, the
// completion's own event waits on the channel, and the next one behind it, for as long as the
// program is slower than the NIC. Later it would be told of nothing. The caller holds cq.mutex.
[[gnu::cold]] void doubt_events(CompletionQueue& cq);
[[gnu::cold]] bool is_in_doubt(const CompletionQueue& cq);
// An event has come in doubt with which nothing came. Others may be behind it, and the doubt lasts.
[[gnu::cold]] void surplus_noticed(CompletionQueue& cq);
// The application asks for an event while events are in doubt. Called before cq.armed_solicited
// says what kind it asks for now. Any thread may call this.
[[gnu::cold]] void note_arming(CompletionQueue& cq);
// While events are in doubt: whether the stock library's CQ would have raised an event for what has
// come for the application, perhaps polled by now. Any thread may call this.
[[gnu::cold]] bool is_event_open(CompletionQueue& cq);

// An event was kept back, and the application may have seen its channel readable. It has other work
// to do, perhaps, without which nothing completes. So it gets the event after all: at the latest
// after kOwedAtMost, which is longer than most switches take, and kOwedSettled after the groups of
// the CQ have settled on their paths. What is under way then completes within a round trip and
// raises an event of its own; a program that has nothing under way stands still for all of it.
inline constexpr std::chrono::milliseconds kOwedAtMost{250}, kOwedSettled{2};
// While a signaled request is under way on a queue that is armed, its completion will raise an
// event. A program that waits for just that one takes an event for its completion (ib_read_lat -e
// posts the next request then), so what is owed waits for that: until the path stands, and for
// kOwedToWaiter after that, since packets may be lost on it, too, and a NIC sends them again only
// after a while, several times. That is for programs that are known to wait in their calls; another
// one may have other connections to serve.
inline constexpr std::chrono::milliseconds kOwedToWaiter{5000};
[[gnu::cold]] bool is_premature(CompletionQueue& cq, const CompletionChannel::Owed& owed);
// Whether the layer has raised an event of its own that no thread has taken yet.
[[gnu::cold]] bool is_announcing(CompletionQueue& cq);
// Owes the application an event of `cq`.
[[gnu::cold]] void owe_event(CompletionQueue& cq);
// A group of the CQ goes on on another path. The caller holds cq.mutex.
[[gnu::cold]] void owed_events_settle(CompletionQueue& cq);

// What epoll says of a completion channel when its driver has let go of the device and no event is
// left; it says so from then on for ever.
inline bool is_closed_channel(uint32_t events) {
  return (events & (EPOLLERR | EPOLLHUP)) != 0 && (events & EPOLLIN) == 0;
}

}  // namespace shift::group

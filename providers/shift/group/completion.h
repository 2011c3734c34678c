// Completions while something is wrong, or has been: classification, side queue, slow poll.
// The healthy path is in ops/poll.cc.
#pragma once

#include <sys/epoll.h>

#include "group/completion_queue.h"

namespace shift::group {

// True for errors that only a broken path causes. Some others may come from one, too, and all of
// them may where the NIC is going (docs/protocol.md, step 1); the rest is the application's own.
bool is_path_error(ibv_wc_status status);

// Handles one completion of a member's real CQ: counts it, then delivers it into the side queue,
// or holds it back. Caller holds cq.mutex; no hot section is running.
void take_completion(CompletionQueue& cq, int member, const Completion& wc);

// Polls the members' real CQs into the side queue until they are empty. Caller holds cq.mutex, and
// no hot section is running.
void collect(CompletionQueue& cq);
// As collect(), for one further member and beside hot sections, which know the default only.
void collect_member(CompletionQueue& cq, int member);

// Moves at most `count` completions out of the side queue; `extra` may be null. Caller holds
// cq.mutex.
int take_side(CompletionQueue& cq, int count, ibv_wc* wc, WcExtra* extra = nullptr);

// Raises an event of our own if completions wait in the side queue that no event has told of, and
// the application waits for one. Caller holds cq.mutex.
void signal_side(CompletionQueue& cq);
// Would a poll find something that no event has told of? Whatever a masked fault left in the queue
// is taken out. A program may count on one event for each completion, and go on waiting without
// having polled (perftest does, with two queues on a channel).
[[gnu::cold]] bool has_news(CompletionQueue& cq);
// The application gets an event, which tells of all that is there.
[[gnu::cold]] void event_given(CompletionQueue& cq);

const char* path_error_name(ibv_wc_status status);

// Adds a completion made by us, with an event if the application waits for one. Caller holds
// cq.mutex.
void put_side(CompletionQueue& cq, const ibv_wc& wc);

// From a hot section: a completion that was polled and is not to be shown yet comes first in the
// next poll.
[[gnu::cold]] void put_first(CompletionQueue& cq, const ibv_wc& wc);
// The clock by which events are kept back; tests stop it.
inline std::chrono::steady_clock::time_point (*event_clock)() = &std::chrono::steady_clock::now;
// The NIC may have raised events for completions that are not the application's, or not news.
[[gnu::cold]] void doubt_events(CompletionQueue& cq);

// ibv_poll_cq when the caller is not the biased thread, or the hot path is barred.
int poll_slow(CompletionQueue& cq, int count, ibv_wc* wc);
// The rest of a hot poll that met an error: wc[from..got) are not yet looked at. Called inside the
// hot section. Returns how many of `count` are filled in. `extra` may be null.
int poll_error(CompletionQueue& cq, int count, ibv_wc* wc, WcExtra* extra, int from, int got);
// As poll_error(), for an extended poll, whose batch belongs to nobody from here on: all of `wc`
// goes to the side queue.
void poll_error_extended(CompletionQueue& cq, const ibv_wc* wc, const WcExtra* extra, int from,
                         int got);

// The CQ's mutex, with every hot section over and no other thread in the middle of an extended
// poll. As lock_queue().
[[gnu::cold]] std::unique_lock<FairMutex> lock_poll(CompletionQueue& cq, bool share = false);

// What epoll says of a completion channel, from now on for ever, when its driver has let go of the
// device and no event is left.
inline bool is_closed_channel(uint32_t events) {
  return (events & (EPOLLERR | EPOLLHUP)) != 0 && (events & EPOLLIN) == 0;
}

// From here on the member's errors are held back and reported. False: the application has seen one.
bool errors_hold(Group& group, int member);
// From here on the application sees them again. False: it cannot, for one was held back already.
[[nodiscard]] bool errors_pass(Group& group, int member);

// Forgets a destroyed QP's completions, and hot-path caches of it. Before its number is given up.
void purge(CompletionQueue& cq, Group* group);

// Looks at a CQ on behalf of an application that may not be polling: reports held-back errors.
void inspect(CompletionQueue& cq);

}  // namespace shift::group

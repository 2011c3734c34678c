// What is done with completions while a fault is handled, and afterwards: the side queue, and the
// slow poll. Errors are classified in group/errors.h. The healthy path is in ops/poll.cc.
// `cq.mutex` always is CompletionQueue::mutex.
#pragma once

#include "group/completion_queue.h"

namespace shift::group {

// Handles one completion of a member's real CQ: counts it, and then puts it into the side queue or
// holds it back. The caller holds cq.mutex; no hot section is running.
void take_completion(CompletionQueue& cq, int member, const Completion& wc);

// Polls the members' real CQs into the side queue until they are empty. The caller holds cq.mutex;
// no hot section is running.
void collect(CompletionQueue& cq);
// Does this for one member. For a further member, hot sections may run at the same time, because
// they poll the default's CQ only.
void collect_member(CompletionQueue& cq, int member);

// Moves at most `count` completions out of the side queue; `extra` may be null. The caller holds
// cq.mutex.
int take_side(CompletionQueue& cq, int count, ibv_wc* wc, WcExtra* extra = nullptr);

// Adds a completion that the layer has made, and raises an event if the application waits for one.
// The caller holds cq.mutex.
void put_side(CompletionQueue& cq, const ibv_wc& wc);

// Called from a hot section: a completion that was polled and must not be shown yet comes first in
// the next poll.
[[gnu::cold]] void put_first(CompletionQueue& cq, const ibv_wc& wc);
// Does the work of ibv_poll_cq when the caller is not the biased thread, or the hot path is barred.
int poll_slow(CompletionQueue& cq, int count, ibv_wc* wc);
// Ends a hot poll that met an error: wc[from..got) are not yet looked at. Called inside the hot
// section. Returns how many of `count` are filled in. `extra` may be null.
int poll_error(CompletionQueue& cq, int count, ibv_wc* wc, WcExtra* extra, int from, int got);
// Like poll_error(), for an extended poll. All of `wc` goes to the side queue, because no thread
// owns the batch from here on.
void poll_error_extended(CompletionQueue& cq, const ibv_wc* wc, const WcExtra* extra, int from,
                         int got);

// Locks the CQ's mutex when every hot section is over and no other thread is between the start and
// the end of an extended poll. `share` is that of lock_queue().
[[gnu::cold]] std::unique_lock<FairMutex> lock_poll(CompletionQueue& cq, bool share = false);

// Forgets the completions of a destroyed QP, and what hot paths have cached of it. Must be called
// before the QP's number is given up. `is_clean`: the default's driver has taken them out of its
// CQ. Some NICs (rxe, siw) keep them, the layer's markers among them, so their CQs are emptied.
void purge(CompletionQueue& cq, Group* group, bool is_clean = false);

// Looks at a CQ for an application that may not poll: reports the errors that are held back.
void inspect(CompletionQueue& cq);

}  // namespace shift::group

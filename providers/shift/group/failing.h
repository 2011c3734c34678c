// Giving up (C6): the application gets the completions that it would have seen without the layer.
#pragma once

#include <cstdint>

namespace shift::group {

struct Group;

// Gives up, on a thread of the application: all QPs go to ERR, so that no NIC writes into the
// application's memory any more, and then it calls fail_stopped().
void fail(Group& group);
// Gives up, when the group is parked and its QPs are in ERR. Each WR that is not completed gets an
// error completion, the first of them with the original error; later posts are flushed. A batch
// that a thread is building on the hot path gets its errors when batch_is_over() finds its end.
void fail_stopped(Group& group);
// Gives these errors. The caller holds send.mutex, and no thread builds such a batch.
void fail_batch(Group& group);

// Adds a flush completion for a request or a receive that was posted after fail(). The caller holds
// the queue's mutex.
void flush_send(Group& group, uint64_t position);
void flush_recv(Group& group, uint64_t position);

}  // namespace shift::group

// Giving up (C6): the application gets what it would have seen without the layer.
#pragma once

#include <cstdint>

namespace shift::group {

struct Group;

// Gives up: every WR that is not completed gets an error completion, the first one the original
// error; later posts are flushed. All QPs go to ERR, so that nothing is written any more.
void fail(Group& group);

// Adds flush completions for sends or receives posted after fail(). Caller holds the queue's mutex.
void flush_send(Group& group, uint64_t position);
void flush_recv(Group& group, uint64_t position);

}  // namespace shift::group

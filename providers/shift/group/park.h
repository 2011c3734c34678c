// Barring the hot paths of groups that leave their path, and opening them again.
//
// This and the steps of fence.h, commit.h, replay.h, drain.h and failing.h are how a group leaves a
// path and goes on with another. They run on the control thread in the order that fsm/ says, but
// where noted, and every one is bounded. They know verbs and the virtual objects, and nothing of
// peers or messages.
#pragma once

#include <span>
#include <vector>

namespace shift::group {

struct CompletionQueue;
struct Group;

// Bars the hot paths of these groups: from the return on, every post is parked in the journal.
void park(std::span<Group* const> groups);

// Back on the hot path, if the group is on its default path with nothing special under way. Caller
// holds send.mutex. On any thread.
void settle(Group& group);

// The queues that the groups' completions come to, each once; null groups have none.
std::vector<CompletionQueue*> cqs_of(std::span<Group* const> groups);

}  // namespace shift::group

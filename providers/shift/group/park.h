// Bars the hot paths of groups that leave their path, and opens them again.
//
// This file and the steps of fence.h, commit.h, replay.h, drain.h and failing.h are how a group
// leaves a path and goes on with another. They run on the control thread, unless a comment says
// otherwise, in the order that fsm/ decides, and each of them is bounded. They know verbs and the
// virtual objects, but neither peers nor messages.
#pragma once

#include <span>
#include <vector>

namespace shift::group {

struct CompletionQueue;
struct Group;

// Bars the hot paths of these groups: when it returns, every post is parked in the journal.
void park(std::span<Group* const> groups);

// Goes back to the hot path if the group is on its default path and nothing special is under way.
// The caller holds send.mutex, on any thread.
void settle(Group& group);

// The CQs that the groups' completions come to, each CQ once. Null groups are skipped.
std::vector<CompletionQueue*> cqs_of(std::span<Group* const> groups);

}  // namespace shift::group

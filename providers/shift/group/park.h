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

// Bars the hot paths of these groups: when it returns, every post is parked in the journal. The
// exception is a batch that a thread has begun on the hot path (ibv_wr_start): the application may
// take any time to end it, and may wait for this thread meanwhile, so nothing waits for the batch.
// The group is parked once batch_is_over(). Groups that end (ending.h) are left as they are.
void park(std::span<Group* const> groups);
// After park(): looks whether the group is parked, and lets other users of the send queue go on.
// Any thread may call it.
[[nodiscard]] bool batch_is_over(Group& group);

// Parks the requests of a group that is to be drained, while receives are still posted (a peer that
// finds no receive could never drain). False: a thread is building a batch on the hot path, or the
// group ends, so nothing has changed, and the caller tries again later.
bool park_sends(Group& group);

// Goes back to the hot path if the group is on its default path and nothing special is under way.
// The caller holds send.mutex, on any thread.
void settle(Group& group);

// The CQs that the groups' completions come to, each CQ once. Null groups are skipped.
std::vector<CompletionQueue*> cqs_of(std::span<Group* const> groups);

}  // namespace shift::group

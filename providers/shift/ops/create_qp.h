// What a new QP has to do with its CQs.
#pragma once

namespace shift::group {
struct CompletionQueue;
struct Group;
}  // namespace shift::group

namespace shift::ops {

// The group's completions come from this queue. One that was let go of has no protected QPs.
void cq_join(group::CompletionQueue& cq, group::Group& group);

}  // namespace shift::ops

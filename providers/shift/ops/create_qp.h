// How a new QP is entered at its CQs.
#pragma once

namespace shift::group {
struct CompletionQueue;
struct Group;
}  // namespace shift::group

namespace shift::ops {

// From here on the group's completions come from this CQ. When the layer has let go of the CQ, the
// group is never protected.
void cq_join(group::CompletionQueue& cq, group::Group& group);
// The QP of a deputy, which was reset, waits for another path again.
void begin_again_elsewhere(group::Group& group);

}  // namespace shift::ops

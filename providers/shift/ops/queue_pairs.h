// A query about a QP, for other files of ops/.
#pragma once

namespace shift::group {
struct Group;
}  // namespace shift::group

namespace shift::ops {

// Whether faults of the group's path are masked, as far as is known. The caller does not hold
// Context::mutex.
bool is_masked(group::Group& group);

}  // namespace shift::ops

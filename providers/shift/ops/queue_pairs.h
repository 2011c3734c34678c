// What others ask of a QP.
#pragma once

namespace shift::group {
struct Group;
}  // namespace shift::group

namespace shift::ops {

// Are the faults of its path masked, as far as is known? Not with Context::mutex held.
bool is_masked(group::Group& group);

}  // namespace shift::ops

// A query about a QP, for other files of ops/.
#pragma once

namespace shift::group {
struct Group;
}  // namespace shift::group

namespace shift::ops {

// Whether a fault of the default NIC stays hidden from the group's application, as far as is known.
// The caller does not hold Context::mutex.
bool is_masked(group::Group& group);

}  // namespace shift::ops

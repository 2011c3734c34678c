// The builder interface of a QP, ibv_wr_*.
#pragma once

namespace shift::group {
struct Group;
}  // namespace shift::group

namespace shift::ops {

// Puts the builder's functions into the QP's table, through which the application calls them.
// Throws std::bad_alloc.
void install_builder(group::Group& group);

}  // namespace shift::ops

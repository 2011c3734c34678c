// The builder interface of a QP, ibv_wr_*.
#pragma once

namespace shift::group {
struct Group;
}  // namespace shift::group

namespace shift::ops {

// Puts the builder's functions into the QP's table, through which the application calls them.
// Throws std::bad_alloc.
void install_builder(group::Group& group);

// Called when the QP is connected. With `aside`, its batches never go the hot way: before a READ of
// a QP that is connected to itself, a change of path has to bar the hot path at once
// (group/read_back.h).
void build_aside(group::Group& group, bool aside);

}  // namespace shift::ops

// The builder interface of a QP, ibv_wr_*.
#pragma once

namespace shift::group {
struct Group;
}  // namespace shift::group

namespace shift::ops {

// Puts the builder's functions into the QP's table, through which the application calls them.
// Throws std::bad_alloc.
void install_builder(group::Group& group);

// Makes the next batch begin in the hot way, which makes notes or entries as the journal does now.
// The caller holds send.mutex, and no batch is open.
void build_anew(group::Group& group);

// Called when the QP is connected. With `aside`, its batches never go the hot way: before a READ of
// a QP that is connected to itself, a change of path has to bar the hot path at once
// (group/read_back.h).
void build_aside(group::Group& group, bool aside);

}  // namespace shift::ops

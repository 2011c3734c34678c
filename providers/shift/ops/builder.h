// The builder interface of a QP, ibv_wr_*.
#pragma once

namespace shift::group {
struct Group;
}  // namespace shift::group

namespace shift::ops {

// Puts it into the table that the application calls it by.
void install_builder(group::Group& group);

}  // namespace shift::ops

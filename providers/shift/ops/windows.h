// Memory windows on protected QPs.
#pragma once

#include <infiniband/verbs.h>

namespace shift::group {
struct Group;
}  // namespace shift::group

namespace shift::ops {

int bind_window(group::Group& group, ibv_mw* mw, ibv_mw_bind* bind);  // on a protected QP

}  // namespace shift::ops

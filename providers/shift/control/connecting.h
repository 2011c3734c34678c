// What attempts.cc and connecting.cc share: connecting a member's QP for a path.
#pragma once

#include <chrono>

#include "control/coordinator.h"

namespace shift::control {

// An attempt that takes longer than this has met a path that swallows messages without an error.
inline constexpr std::chrono::milliseconds kAttemptMax{1000};

// What the worker found out.
struct NewAddress {
  int error = 0;
  wire::QpAddress address;
};

// Of the member's, for its end of the path. All zeros when there is none: connecting will find no
// such address.
wire::Gid own_gid(const group::Group& group, PathName path, int member);

}  // namespace shift::control

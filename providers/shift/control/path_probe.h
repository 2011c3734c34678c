// Tries a new connection with an empty WRITE: the leader tries the path that it attempts, and the
// follower tries a path when the leader asks for that. Each session has one probe at a time. Only
// the control loop uses this.
#pragma once

#include <functional>

#include "control/nic_pairs.h"
#include "group/group.h"
#include "net/timer.h"

namespace shift::control {

class PathProbe {
 public:
  PathProbe(group::Group& group, net::Loop& loop) : group_(group), loop_(loop), look_again_(loop) {}

  // An attempt that takes longer than this has met a path that swallows messages without an error.
  static constexpr std::chrono::milliseconds kPatience{1000};

  // Posts the probe on the member's QP, and waits for its completion for so long. `then` is told
  // whether the probe came through, before start() returns or later.
  using Then = std::function<void(bool passed)>;
  void start(int member, std::chrono::milliseconds patience, Then then);
  // From now on it waits for no longer than that.
  void hurry(std::chrono::milliseconds patience);
  // Ends the probe without a result. Does nothing when no probe is under way.
  void stop();

 private:
  void look();

  group::Group& group_;
  net::Loop& loop_;
  net::Timer look_again_;
  int member_ = group::kNoMember;
  Time begun_{};
  std::chrono::nanoseconds patience_{};
  Then then_;
};

}  // namespace shift::control

// The paths that are being shut, in batches: one fence for all sessions that leave their paths
// together. Control loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "control/nic_pairs.h"
#include "group/fence.h"
#include "net/timer.h"

namespace shift::control {

class Sessions;
struct Session;

class Fences {
 public:
  // Told of each session's path as soon as it is decided.
  using Done = std::function<void(Session& session, const group::Fence::Entry& entry)>;
  Fences(net::Loop& loop, const Sessions& sessions, Done done)
      : loop_(loop), sessions_(sessions), done_(std::move(done)), poll_again_(loop) {}

  // Shuts the path that the session's group is committed to, with all that are known by now.
  void start(const Session& session);
  // The group is about to be destroyed.
  void forget(const group::Group* group);

 private:
  struct Running {
    group::Fence fence;
    std::vector<uint64_t> serials;  // 0: that session was told
    Time begun;
  };
  void begin();
  void step();
  void tell(Running& running);

  net::Loop& loop_;
  const Sessions& sessions_;
  const Done done_;
  std::set<uint64_t> due_;  // serials
  bool scheduled_ = false;
  std::vector<std::unique_ptr<Running>> running_;
  net::Timer poll_again_;
};

}  // namespace shift::control

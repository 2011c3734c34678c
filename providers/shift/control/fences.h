// Shuts paths in batches: one fence serves all sessions that leave their paths together. Only the
// control loop uses this.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "control/late_nics.h"
#include "control/nic_pairs.h"
#include "control/parking.h"
#include "group/fence.h"
#include "net/timer.h"

namespace shift::control {

class Sessions;
struct Session;

class Fences {
 public:
  // Called for each session as soon as the fence has decided on its path.
  using Done = std::function<void(Session& session, const group::Fence::Entry& entry)>;
  Fences(net::Loop& loop, const Sessions& sessions, LateNics& late, Done done)
      : loop_(loop),
        sessions_(sessions),
        late_(late),
        done_(std::move(done)),
        parking_(loop, sessions, [this](const auto& parked) { shut(parked); }),
        poll_again_(loop) {}

  // Shuts the path that the session's group is committed to, in one batch with all other paths that
  // are known by now.
  void start(const Session& session);
  // The group is about to be destroyed, or has failed.
  void forget(const group::Group* group);

 private:
  struct Running {
    group::Fence fence;
    std::vector<uint64_t> serials;  // 0 once the session has been told
    Time begun;
  };
  void begin();
  void shut(const std::vector<Session*>& parked);
  void step();
  void tell(Running& running);

  net::Loop& loop_;
  const Sessions& sessions_;
  LateNics& late_;
  const Done done_;
  std::vector<uint64_t> due_;  // serials of sessions whose fence has not begun
  bool scheduled_ = false;
  Parking parking_;
  std::vector<std::unique_ptr<Running>> running_;
  net::Timer poll_again_;
};

}  // namespace shift::control

// An input of a session's failure state machine: an event, and all that its actions need to know of
// it.
#pragma once

#include <cstdint>
#include <optional>

#include "control/nic_pairs.h"
#include "fsm/fsm.h"
#include "group/cause.h"
#include "wire/messages.h"

namespace shift::control {

struct Session;

// One connection of a path. The leader numbers a session's connections, with wrap-around.
struct Connection {
  PathName path;
  uint32_t generation = 0;
  bool operator==(const Connection&) const = default;
};
inline bool generation_is_newer(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) > 0;
}

struct Input {
  fsm::Event event;
  group::Cause cause = {};
  // When the cause showed itself, if that was not just now.
  std::optional<Time> seen = {};
  // With kPathReady: the connection that the leader goes on with.
  std::optional<Connection> target = {};
  // The reason that this end gives to the peer if it has to refuse the round because of this input.
  std::optional<wire::RefuseReason> refusal = {};
  // The peer left the path because of a fault, and not for a better path.
  bool is_peer_fault = false;
  // The epoch of the peer's message: a refusal answers this epoch, and a new round takes it.
  std::optional<uint32_t> epoch = {};
  // The peer's Progress, valid while the input is handled.
  const wire::Progress* progress = nullptr;

  // An event that follows from this one while it is handled: it answers the same message.
  Input then(fsm::Event next, group::Cause why = {}) const {
    return {.event = next, .cause = why, .epoch = epoch, .progress = progress};
  }
};

// Runs the failure state machine. Only the control loop uses this.
class Machine {
 public:
  // Takes the session from state to state, and runs the actions on the way. Nothing else changes a
  // state.
  virtual void feed(Session& session, const Input& input) = 0;

 protected:
  ~Machine() = default;
};

}  // namespace shift::control

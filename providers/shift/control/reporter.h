// Tells the notice board (state/board.h) what becomes of this process's NICs and QPs, so that an
// operator can look at it. Sessions are told of in bundles, because a fault changes many of them
// several times within milliseconds. Only the control loop uses this.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "group/cause.h"
#include "group/group.h"
#include "group/replay.h"
#include "net/timer.h"
#include "state/layout.h"
#include "wire/messages.h"

namespace shift::state {
class Board;
}

namespace shift::control {

class NicWatch;
class Orders;
struct Incident;
class Sessions;
struct Session;

// A change of path that is over.
struct Switched {
  int from, to;  // members of this end; kNoMember: not known
  group::Detector detector;
  const char* cause;
  uint32_t us, fence_us, notice_us;
  group::ReplayResult result;
};

class Reporter {
 public:
  Reporter(net::Loop& loop, const Sessions& sessions, const NicWatch& nics, const Orders& orders)
      : sessions_(sessions), nics_(nics), orders_(orders), write_(loop) {}

  // Without this call nothing is told. The board must outlive the reporter.
  void board_set(state::Board* board) { board_ = board; }

  void context_changed(const group::Context* context);
  void context_forget(const group::Context* context);
  // Something that a record tells of the session may have changed.
  void touch(Session& session);
  void session_forget(const Session& session);
  void switched(const Session& session, const Switched& change);
  void failed(const Session& session, wire::RefuseReason refusal, group::Cause cause);
  void incident(const Incident& incident);
  void peer_found();
  void peer_missing();
  void drain_called_off();

 private:
  // What was told of a session last.
  struct Told {
    state::GroupRecord record;
    uint32_t pause_us = 0;
  };

  void write_soon();
  void write();
  void fault_add(state::FaultRecord record);
  state::GroupRecord record_of(const Session& session, const Told& told) const;

  const Sessions& sessions_;
  const NicWatch& nics_;
  const Orders& orders_;
  state::Board* board_ = nullptr;
  std::unordered_map<uint64_t, Told> told_;
  std::vector<uint64_t> touched_;
  std::vector<state::FaultRecord> faults_;  // that the board has not been told yet
  net::Timer write_;
};

}  // namespace shift::control

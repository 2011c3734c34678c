// The failure state machine of one group, as one table: states by events. It is pure: it uses no
// verbs, clock, lock, allocation or log, so any thread may call it. The coordinator
// (control/coordinator) feeds it events on the control thread, runs the returned actions in order,
// and feeds their outcomes back as further events. docs/state-machine.md draws the table.
//
// Only step() decides on a state, and only Coordinator::enter() stores one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace shift::fsm {

enum class State : uint8_t {
  // No peer speaks for the other QP: the application has the stock behaviour (C10). kBound ends
  // this state.
  kUnbound,
  // Traffic runs on one path, and faults are masked; this also holds while the peer is still being
  // looked for. A QP begins here, at RTR. The state is ended by a fault, by a better path, or
  // because there is no peer.
  kActive,
  // Leader: posting has stopped, and what is under way completes, so that the way back replays
  // nothing.
  kDraining,
  // Follower: it has stopped posting, too, because the leader asked for a drain.
  kHeld,
  // Posting has stopped. The path that this end is committed to is in ERR, and its completions are
  // being drained.
  kFencing,
  // Follower: the fence runs as in kFencing, and the leader has already named the target and told
  // its counter.
  kFencingTargeted,
  // This end is fenced and committed to no path. The leader looks for a ready path; the follower
  // waits for the leader's Progress.
  kSeeking,
  // Leader: it is committed to the target and has sent its Progress; it waits for the follower's.
  kExchanging,
  // Both ends are fenced and committed to the target; this end is asking for the keys of the
  // replay.
  kResuming,
  // The application has been given the original error (C6). Only the application ends this state.
  kFailed,
  // The application destroyed, reset or broke the QP itself; none of its errors is masked any more.
  kClosed,
  kCount,
};

// A set of states. The table's rows use it, and so does code that asks which part of a round a
// group is in.
class StateSet {
 public:
  constexpr StateSet(State state) { in_[static_cast<size_t>(state)] = true; }
  constexpr StateSet(std::initializer_list<StateSet> sets) {
    for (const StateSet& set : sets) {
      for (size_t i = 0; i < in_.size(); i++) in_[i] = in_[i] || set.in_[i];
    }
  }
  constexpr bool has(State state) const { return in_[static_cast<size_t>(state)]; }

 private:
  std::array<bool, static_cast<size_t>(State::kCount)> in_{};
};

// Posting has stopped, and what is under way completes.
inline constexpr StateSet kParked{State::kDraining, State::kHeld};
// A path carries traffic, and its faults are masked.
inline constexpr StateSet kCarrying{State::kActive, kParked};
// The old path is being shut.
inline constexpr StateSet kFence{State::kFencing, State::kFencingTargeted};
// Receives are posted on the target.
inline constexpr StateSet kCommitted{State::kExchanging, State::kResuming};
// The group is between two paths: a round is under way.
inline constexpr StateSet kLeaving{kFence, State::kSeeking, kCommitted};
// The group is protected.
inline constexpr StateSet kMasking{kCarrying, kLeaving};
// The application has its error, or it has ended the QP itself.
inline constexpr StateSet kOver{State::kFailed, State::kClosed};

enum class Event : uint8_t {
  kBound,      // a peer has proven that it owns the other QP
  kNoPeer,     // the search for a peer has found none
  kAppError,   // an error that the application caused; it is never masked
  kAppClosed,  // the application destroyed or reset the QP, or moved it to ERR

  kPathFault,       // error completion, failing post, port or device event on the committed path
  kBetterPath,      // leader: a better path than the current one has been ready for long enough
  kPathReady,       // leader: there is a ready path that may become the target
  kTargetUnusable,  // the target does not work here

  kDrained,       // nothing is under way any more, for the leader neither here nor at the follower
  kDrainTimeout,  // the drain took too long

  kFenceDone,      // the QP is in ERR and drained, or its device is dead and its CQs are empty
  kFenceFailed,    // the fence could not be proven in time
  kKeysReady,      // every key of the replay is known
  kReplayRefused,  // something must not or cannot be replayed (C5, unknown key)
  kDeadline,       // the round took longer than its bound

  kPeerDrain,            // the leader wants to go back to a better path
  kPeerDrainCancel,      // the leader has called its drain off
  kPeerSwitchNext,       // the peer is in an epoch ahead of this end's: it has left the path
  kPeerSwitchCurrent,    // the peer has left the path that this end has left, too: crossing
                         // detections
  kTargetNext,           // follower: the leader's Progress has overtaken its Switch
  kTargetCurrent,        // follower: the leader is fenced, tells its counter, and names the target
  kPeerProgressCurrent,  // leader: the follower is fenced, tells its counter, and is committed to
                         // the target
  kPeerMessageStale,     // any message of an older epoch, or of an epoch that cannot exist
  kPeerRefused,          // the peer cannot move this QP in the current epoch
  kPeerClosed,           // the peer's QP is gone: destroyed, reset, or in ERR by its application
  kChannelLost,          // no connection to the peer is left
  kCount,
};

enum class Action : uint8_t {
  kNone,
  kProtect,    // errors of the current path are held back from here on
  kUnprotect,  // the application sees these errors again

  kPark,         // stop posting: sends and receives wait in the journal
  kUnpark,       // post what was parked on the current path and let the application post there
  kWatchDrain,   // follow the drain; it answers kDrained or kDrainTimeout
  kLeaveDrain,   // stop following the drain
  kSendDrain,    // leader: ask the follower to park and drain
  kSendDrained,  // follower: tell the leader that this end is drained
  kSendDrainCancel,

  kEnterEpoch,   // enter the peer's epoch if it is ahead, else the next one; older ones are stale
                 // (C8)
  kSendSwitch,   // tell the peer that this end leaves the path
  kStartFence,   // park, set the committed QP to ERR, drain; it answers kFenceDone or kFenceFailed
  kArmDeadline,  // bound the round; it answers kDeadline. A deadline that runs already goes on
  kCancelDeadline,
  kSeekPath,      // leader: it answers kPathReady, now or later; follower: this does nothing
  kKeepProgress,  // remember the peer's counter and the target
  // Post the receives that were not consumed on the target; if that fails, it answers
  // kTargetUnusable.
  kCommit,
  kSendProgress,  // this end's counter and the target; the peer may replay once it has these
  kRequestKeys,   // ask for the keys of the replay; it answers kKeysReady or kReplayRefused
  kReplay,        // complete what was executed, post the rest on the target, then resume posting

  kFail,  // give the application the original error, then flushes
  kSendRefuse,
  kSendClose,
  kFlushWaiting,  // the path's QP is in ERR, and flushes what waits for a key or a registration
  kRebind,        // look for the peer again in the background
  kCount,
};

inline constexpr size_t kMaxActions = 7;

enum class Kind : uint8_t { kEmpty, kTransition, kIgnore, kImpossible };

struct Cell {
  Kind kind = Kind::kEmpty;
  State next = State::kUnbound;
  std::array<Action, kMaxActions> actions{};
  const char* reason = "";  // why the event is ignored, or why it cannot happen
};

// Returns the cell for an event in a state. Every pair has one, which is checked at compile time.
const Cell& step(State state, Event event);

const char* to_string(State);
const char* to_string(Event);
const char* to_string(Action);

// How a message's epoch relates to this end's own, with wrap-around (in the style of RFC 1982). A
// message is kNext however far it is ahead: its sender may have seen two faults while this end
// heard of none.
enum class EpochIs : uint8_t { kStale, kCurrent, kNext };
constexpr EpochIs compare_epoch(uint32_t message, uint32_t own) {
  // An honest peer is ahead by the faults of one outage. A larger step is a lie, or a copy from
  // long ago.
  constexpr uint32_t kAheadMax = 1u << 16;
  const uint32_t ahead = message - own;
  return ahead == 0 ? EpochIs::kCurrent : ahead <= kAheadMax ? EpochIs::kNext : EpochIs::kStale;
}

}  // namespace shift::fsm

// The failure state machine of one QP group, as one table: states by events. Pure: no verbs, clock,
// lock, allocation or logging. The shell (control/coordinator) feeds events on the control thread,
// runs the returned actions in order and feeds their outcome back. docs/state-machine.md draws it.
//
// Only step() decides a state and only Coordinator::feed() stores one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace shift::fsm {

enum class State : uint8_t {
  // No peer that speaks for the other QP: the application has the stock behaviour (C10). Ended by
  // kBound.
  kUnbound,
  // Traffic on one path, faults are masked; also while the peer is still being looked for. A QP
  // begins here, at RTR. Ended by a fault, by a better path, or because there is no peer.
  kActive,
  // Leader: posting stopped, what is under way completes, so that the way back replays nothing.
  kDraining,
  // Follower: posting stopped, what is under way completes, because the leader asked.
  kHeld,
  // Posting stopped; the path we are committed to is in ERR and its completions are being drained.
  kFencing,
  // Follower, as kFencing; the leader has already named the target and told its counter.
  kFencingTargeted,
  // Fenced and committed to nothing. Leader: looks for a ready path. Follower: waits for the
  // leader's Progress.
  kSeeking,
  // Leader: committed to the target, our Progress is sent; the follower's is awaited.
  kExchanging,
  // Both ends are fenced and committed to the target; the keys of the replay are being asked for.
  kResuming,
  // The application has been given the original error (C6). Ended by destroy or reset.
  kFailed,
  // The application destroyed, reset or broke the QP itself; nothing of it is masked any more.
  kClosed,
  kCount,
};

// A set of states, for the table's rows and for whoever asks in which part of the way a group is.
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

// Posting stopped, and what is under way completes.
inline constexpr StateSet kParked{State::kDraining, State::kHeld};
// A path carries traffic, and faults of it are masked.
inline constexpr StateSet kCarrying{State::kActive, kParked};
// The old path is being shut.
inline constexpr StateSet kFence{State::kFencing, State::kFencingTargeted};
// Receives are posted on the target.
inline constexpr StateSet kCommitted{State::kExchanging, State::kResuming};
// Between two paths: a round is under way.
inline constexpr StateSet kLeaving{kFence, State::kSeeking, kCommitted};
// The group is protected.
inline constexpr StateSet kMasking{kCarrying, kLeaving};
// The application has its error, or ended the QP itself.
inline constexpr StateSet kOver{State::kFailed, State::kClosed};

enum class Event : uint8_t {
  kBound,      // a peer has proven that it owns the other QP
  kNoPeer,     // the search for one has found none
  kAppError,   // an error that is the application's own doing; it is never masked
  kAppClosed,  // destroy, reset or ERR by the application

  kPathFault,       // error completion, failing post, port or device event on the committed path
  kBetterPath,      // leader: a better path than the current one has been ready for long enough
  kPathReady,       // leader: there is a path to go on with
  kTargetUnusable,  // the target does not work here

  kDrained,       // nothing is under way here (leader: nor at the follower)
  kDrainTimeout,  // that took too long

  kFenceDone,      // QP in ERR and drained, or its device is dead and its CQs are empty
  kFenceFailed,    // that could not be proven in time
  kKeysReady,      // every key of the replay is known
  kReplayRefused,  // something must not or cannot be replayed (C5, unknown key)
  kDeadline,       // the way to another path took longer than its bound

  kPeerDrain,            // the leader wants to go back to a better path
  kPeerDrainCancel,      // and has given it up
  kPeerSwitchNext,       // the peer's epoch is ahead: it left the path
  kPeerSwitchCurrent,    // it left the path that this end left, too: crossing detections
  kTargetNext,           // follower: the leader's Progress overtook its Switch
  kTargetCurrent,        // follower: the leader is fenced, counted, and names the target
  kPeerProgressCurrent,  // leader: the follower is fenced, counted and committed to our target
  kPeerMessageStale,     // any message of an older epoch, or of one that cannot exist
  kPeerRefused,          // the peer cannot move this QP in the current epoch
  kPeerClosed,           // the peer's application destroyed or reset its QP
  kChannelLost,          // no connection to the peer is left
  kCount,
};

enum class Action : uint8_t {
  kNone,
  kProtect,    // errors of the current path are held back from here on
  kUnprotect,  // they are the application's to see again

  kPark,         // stop posting: sends and receives wait in the journal
  kUnpark,       // post what was parked on the current path and let the application post there
  kWatchDrain,   // answers kDrained or kDrainTimeout
  kLeaveDrain,   // stop watching
  kSendDrain,    // leader: ask the follower to park and drain
  kSendDrained,  // follower: drained
  kSendDrainCancel,

  kEnterEpoch,   // the peer's epoch if it is ahead, else ours + 1; everything older is stale (C8)
  kSendSwitch,   // tell the peer
  kStartFence,   // park; committed QP to ERR, drain; answers kFenceDone or kFenceFailed
  kArmDeadline,  // answers kDeadline; one that runs already goes on
  kCancelDeadline,
  kSeekPath,      // leader: answers kPathReady, now or later; follower: nothing
  kKeepProgress,  // remember the peer's counter and the target
  kCommit,  // receives that were not consumed, on the target; answers kTargetUnusable if need be
  kSendProgress,  // our counter and the target; the peer may replay once it has this
  kRequestKeys,   // answers kKeysReady or kReplayRefused
  kReplay,        // complete what was executed, post the rest on the target, then resume posting

  kFail,  // original error, then flushes, to the application
  kSendRefuse,
  kSendClose,
  kRebind,  // look for the peer again in the background
  kCount,
};

inline constexpr size_t kMaxActions = 7;

enum class Kind : uint8_t { kEmpty, kTransition, kIgnore, kImpossible };

struct Cell {
  Kind kind = Kind::kEmpty;
  State next = State::kUnbound;
  std::array<Action, kMaxActions> actions{};
  const char* reason = "";  // why it is ignored, or why it cannot happen
};

// The cell for an event in a state. Total: every pair has one (checked at compile time).
const Cell& step(State state, Event event);

const char* to_string(State);
const char* to_string(Event);
const char* to_string(Action);

// How a message's epoch relates to ours, with wrap-around (RFC 1982 style comparison). Ahead is
// ahead, by however much: an end may have seen two faults while the other heard of none.
enum class EpochIs : uint8_t { kStale, kCurrent, kNext };
constexpr EpochIs compare_epoch(uint32_t message, uint32_t own) {
  // An honest peer is ahead by the faults of one outage. More is a lie, or a copy from long ago.
  constexpr uint32_t kAheadMax = 1u << 16;
  const uint32_t ahead = message - own;
  return ahead == 0 ? EpochIs::kCurrent : ahead <= kAheadMax ? EpochIs::kNext : EpochIs::kStale;
}

}  // namespace shift::fsm

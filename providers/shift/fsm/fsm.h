// The failure state machine of one QP group, as one table: states by events. Pure: no verbs, clock,
// lock, allocation or logging. The shell (control/coordinator) feeds events on the control thread,
// runs the returned actions in order and feeds their outcome back. docs/protocol.md draws it.
//
// Only step() decides a state and only Coordinator::feed() stores one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace shift::fsm {

enum class State : uint8_t {
  // No peer or no backup yet: the application has the stock behaviour. Ended by kBound.
  kUnbound,
  // Traffic on the default path; both ends hold a connected backup QP. Ended by a fault.
  kArmed,
  // Posting stopped; the old QP is in ERR and its completions are being drained.
  kFencing,
  // As kFencing; the peer has already sent its progress for this epoch.
  kFencingPeerReady,
  // Old path fenced, receives stand on the backup, our progress is sent; the peer's is awaited.
  kExchanging,
  // Both ends fenced; the keys that the replay needs are being asked for.
  kResuming,
  // Traffic on the backup path.
  kOnBackup,
  // The application has been given the original error (C6). Ended by destroy or reset.
  kFailed,
  // The application destroyed, reset or broke the QP itself; nothing of it is masked any more.
  kClosed,
  kCount,
};

enum class Event : uint8_t {
  kBound,                // both backup QPs are connected to each other
  kLocalFault,           // error completion, failing post, port or device event on the default path
  kAppError,             // an error that is the application's own doing; it is never masked
  kAppClosed,            // destroy, reset or ERR by the application
  kPeerSwitchNext,       // the peer left the path of our epoch
  kPeerSwitchCurrent,    // the peer left the same path as we did: crossing detections
  kPeerProgressNext,     // the peer's progress overtook its switch message
  kPeerProgressCurrent,  // the peer is fenced and counted
  kPeerMessageStale,     // any message of an older epoch, or of one that cannot exist
  kPeerRefused,          // the peer cannot move this QP in the current epoch
  kPeerClosed,           // the peer's application destroyed or reset its QP
  kChannelLost,          // no connection to the peer is left
  kFenceDone,            // old QP in ERR and drained, or its device is dead and its CQs are empty
  kFenceFailed,          // that could not be proven in time
  kKeysReady,            // every key of the replay is known
  kReplayRefused,        // something must not or cannot be replayed (C5, unknown key)
  kBackupFault,          // the backup path failed
  kDeadline,             // the switch took longer than its bound
  kCount,
};

enum class Action : uint8_t {
  kNone,
  kEnterEpoch,   // epoch + 1: everything older is stale from here on (C8)
  kStopPosting,  // park sends and receives in the journal
  kSendSwitch,   // tell the peer
  kStartFence,   // default QP to ERR, drain; answers kFenceDone or kFenceFailed
  kArmDeadline,  // answers kDeadline
  kCancelDeadline,
  kKeepProgress,    // remember the peer's counter
  kRepostReceives,  // receives that were not consumed, on the backup QP
  kSendProgress,    // our counter; the peer may replay once it has this
  kRequestKeys,     // answers kKeysReady or kReplayRefused
  kReplay,          // complete what was executed, post the rest on the backup, then resume posting
  kFail,            // original error, then flushes, to the application
  kSendRefuse,
  kSendClose,
  kRebind,  // look for the peer again in the background
};

inline constexpr size_t kMaxActions = 6;

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

// How a message's epoch relates to ours, with wrap-around (RFC 1982 style comparison).
enum class EpochIs : uint8_t { kStale, kCurrent, kNext };
constexpr EpochIs compare_epoch(uint32_t message, uint32_t own) {
  const uint32_t ahead = message - own;
  return ahead == 0 ? EpochIs::kCurrent : ahead == 1 ? EpochIs::kNext : EpochIs::kStale;
}

}  // namespace shift::fsm

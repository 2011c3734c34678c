// The failure state machine's table itself, event by event; each line is one event in one or more
// states. docs/state-machine.md, which is generated from it, shows it state by state.
#include "fsm/fsm.h"

#include <algorithm>

namespace shift::fsm {
namespace {

using S = State;
using E = Event;
using A = Action;

constexpr size_t kStates = static_cast<size_t>(S::kCount);
constexpr size_t kEvents = static_cast<size_t>(E::kCount);

constexpr StateSet kFollowerOnly{S::kHeld, S::kFencingTargeted};
constexpr StateSet kLeaderOnly{S::kDraining, S::kExchanging};

struct Row {
  StateSet states;
  Event event;
  Cell cell;
  bool stays = false;  // `next` is the state that the row is for
};

template <typename... Actions>
constexpr Row go(StateSet states, E event, S next, Actions... actions) {
  static_assert(sizeof...(actions) <= kMaxActions);
  return {states, event, {Kind::kTransition, next, {actions...}, ""}};
}
template <typename... Actions>
constexpr Row stay(StateSet states, E event, Actions... actions) {
  return {states, event, {Kind::kTransition, S::kUnbound, {actions...}, ""}, true};
}
constexpr Row ignore(StateSet states, E event, const char* reason) {
  return {states, event, {Kind::kIgnore, S::kUnbound, {}, reason}, true};
}
constexpr Row never(StateSet states, E event, const char* reason) {
  return {states, event, {Kind::kImpossible, S::kUnbound, {}, reason}, true};
}

constexpr const char* kOverReason = "the application has its error, or gave the QP up";
constexpr const char* kAlready = "already leaving that path";
constexpr const char* kUnprotected = "unprotected: the application has the stock behaviour (C10)";
constexpr const char* kCopy = "said again on a new connection; this is a copy";
constexpr const char* kLate = "it belongs to something that has ended";
constexpr const char* kRole = "the other role's event";
constexpr const char* kFenceOnce = "no fence is under way";

constexpr Row kRows[] = {
    // ---- the application's events
    go(S::kUnbound, E::kAppError, S::kClosed, A::kFlushWaiting),
    go(S::kActive, E::kAppError, S::kClosed, A::kSendClose, A::kFlushWaiting),
    go(kParked, E::kAppError, S::kFailed, A::kLeaveDrain, A::kFail, A::kSendRefuse),
    go({kFence, kCommitted}, E::kAppError, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    ignore(S::kSeeking, E::kAppError, "the error is the fenced path's; its request meets it again"),
    ignore(kOver, E::kAppError, kOverReason),

    go({S::kUnbound, S::kActive, S::kFailed}, E::kAppClosed, S::kClosed, A::kSendClose),
    go(kParked, E::kAppClosed, S::kClosed, A::kLeaveDrain, A::kSendClose),
    go(kLeaving, E::kAppClosed, S::kClosed, A::kCancelDeadline, A::kSendClose),
    ignore(S::kClosed, E::kAppClosed, kOverReason),

    // ---- events of paths
    go(S::kUnbound, E::kBound, S::kActive, A::kProtect),
    ignore({S::kActive, kParked, kLeaving}, E::kBound, "protected already"),
    ignore(kOver, E::kBound, kOverReason),

    go(S::kActive, E::kNoPeer, S::kUnbound, A::kUnprotect),
    go({S::kFencing, S::kSeeking}, E::kNoPeer, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    ignore(S::kUnbound, E::kNoPeer, kUnprotected),
    never({kParked, S::kFencingTargeted, kCommitted}, E::kNoPeer, "a peer's word led here"),
    ignore(kOver, E::kNoPeer, kOverReason),

    ignore(S::kUnbound, E::kPathFault, kUnprotected),
    go({S::kActive, kCommitted}, E::kPathFault, S::kFencing, A::kEnterEpoch, A::kSendSwitch,
       A::kArmDeadline, A::kStartFence),
    go(kParked, E::kPathFault, S::kFencing, A::kLeaveDrain, A::kEnterEpoch, A::kSendSwitch,
       A::kArmDeadline, A::kStartFence),
    ignore({kFence, S::kSeeking}, E::kPathFault, kAlready),
    ignore(kOver, E::kPathFault, kOverReason),

    go(S::kActive, E::kBetterPath, S::kDraining, A::kPark, A::kSendDrain, A::kWatchDrain),
    ignore(S::kUnbound, E::kBetterPath, kUnprotected),
    ignore(kParked, E::kBetterPath, "the end is on its way to one"),
    ignore(kLeaving, E::kBetterPath, "the target is chosen when the fence is done"),
    ignore(kOver, E::kBetterPath, kOverReason),

    go(S::kSeeking, E::kPathReady, S::kExchanging, A::kCommit, A::kSendProgress),
    ignore({S::kUnbound, S::kActive, kParked, kFence, kCommitted}, E::kPathReady,
           "only the state seeking takes it"),
    ignore(kOver, E::kPathReady, kOverReason),

    go(kCommitted, E::kTargetUnusable, S::kFencing, A::kEnterEpoch, A::kSendSwitch, A::kArmDeadline,
       A::kStartFence),
    go(S::kFencingTargeted, E::kTargetUnusable, S::kFencing, A::kEnterEpoch, A::kSendSwitch),
    never({S::kUnbound, S::kActive, kParked, S::kFencing, S::kSeeking}, E::kTargetUnusable,
          "no target was named"),
    ignore(kOver, E::kTargetUnusable, kOverReason),

    // ---- events of the way back
    go(S::kDraining, E::kDrained, S::kFencing, A::kLeaveDrain, A::kEnterEpoch, A::kSendSwitch,
       A::kArmDeadline, A::kStartFence),
    stay(S::kHeld, E::kDrained, A::kSendDrained),
    ignore({S::kUnbound, S::kActive, kLeaving}, E::kDrained, kLate),
    ignore(kOver, E::kDrained, kOverReason),

    go(S::kDraining, E::kDrainTimeout, S::kActive, A::kLeaveDrain, A::kSendDrainCancel, A::kUnpark),
    go(S::kHeld, E::kDrainTimeout, S::kActive, A::kLeaveDrain, A::kUnpark),
    ignore({S::kUnbound, S::kActive, kLeaving}, E::kDrainTimeout, kLate),
    ignore(kOver, E::kDrainTimeout, kOverReason),

    go(S::kActive, E::kPeerDrain, S::kHeld, A::kPark, A::kWatchDrain),
    ignore(S::kUnbound, E::kPeerDrain, kUnprotected),
    ignore(S::kHeld, E::kPeerDrain, kCopy),
    ignore({S::kFencing, S::kFencingTargeted, S::kSeeking, S::kResuming}, E::kPeerDrain, kAlready),
    never(kLeaderOnly, E::kPeerDrain, kRole),
    ignore(kOver, E::kPeerDrain, kOverReason),

    go(S::kHeld, E::kPeerDrainCancel, S::kActive, A::kLeaveDrain, A::kUnpark),
    ignore({S::kUnbound, S::kActive}, E::kPeerDrainCancel, kLate),
    ignore({S::kFencing, S::kFencingTargeted, S::kSeeking, S::kResuming}, E::kPeerDrainCancel,
           kAlready),
    never(kLeaderOnly, E::kPeerDrainCancel, kRole),
    ignore(kOver, E::kPeerDrainCancel, kOverReason),

    // ---- answers to this end's own steps
    go(S::kFencing, E::kFenceDone, S::kSeeking, A::kSeekPath),
    go(S::kFencingTargeted, E::kFenceDone, S::kResuming, A::kCommit, A::kSendProgress,
       A::kRequestKeys),
    never({S::kUnbound, S::kActive, kParked, S::kSeeking, kCommitted}, E::kFenceDone, kFenceOnce),
    ignore(kOver, E::kFenceDone, kOverReason),

    go(kFence, E::kFenceFailed, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    never({S::kUnbound, S::kActive, kParked, S::kSeeking, kCommitted}, E::kFenceFailed, kFenceOnce),
    ignore(kOver, E::kFenceFailed, kOverReason),

    go(S::kResuming, E::kKeysReady, S::kActive, A::kCancelDeadline, A::kReplay),
    ignore({S::kUnbound, S::kActive, kParked, kFence, S::kSeeking, S::kExchanging}, E::kKeysReady,
           kLate),
    ignore(kOver, E::kKeysReady, kOverReason),

    go(kCommitted, E::kReplayRefused, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    go({S::kUnbound, S::kActive}, E::kReplayRefused, S::kFailed, A::kFail, A::kSendRefuse),
    go(kParked, E::kReplayRefused, S::kFailed, A::kLeaveDrain, A::kFail, A::kSendRefuse),
    ignore({kFence, S::kSeeking}, E::kReplayRefused, "the next replay asks again"),
    ignore(kOver, E::kReplayRefused, kOverReason),

    go(kLeaving, E::kDeadline, S::kFailed, A::kFail, A::kSendRefuse),
    ignore({S::kUnbound, S::kActive, kParked}, E::kDeadline, kLate),
    ignore(kOver, E::kDeadline, kOverReason),

    // ---- events that come from the peer
    stay({S::kUnbound, kOver}, E::kPeerSwitchNext, A::kSendRefuse),
    go({S::kActive, kCommitted}, E::kPeerSwitchNext, S::kFencing, A::kEnterEpoch, A::kSendSwitch,
       A::kArmDeadline, A::kStartFence),
    go(kParked, E::kPeerSwitchNext, S::kFencing, A::kLeaveDrain, A::kEnterEpoch, A::kSendSwitch,
       A::kArmDeadline, A::kStartFence),
    // The fence that is under way serves the new epoch, too; a target that the old epoch named does
    // not.
    go(kFence, E::kPeerSwitchNext, S::kFencing, A::kEnterEpoch, A::kSendSwitch),
    stay(S::kSeeking, E::kPeerSwitchNext, A::kEnterEpoch, A::kSendSwitch, A::kSeekPath),

    stay({S::kUnbound, kOver}, E::kPeerSwitchCurrent, A::kSendRefuse),
    ignore({S::kActive, kParked}, E::kPeerSwitchCurrent, kCopy),
    ignore(kLeaving, E::kPeerSwitchCurrent, "crossing detections: it is the answer"),

    stay({S::kUnbound, kOver}, E::kTargetNext, A::kSendRefuse),
    go(S::kActive, E::kTargetNext, S::kFencingTargeted, A::kEnterEpoch, A::kKeepProgress,
       A::kArmDeadline, A::kStartFence),
    go(S::kHeld, E::kTargetNext, S::kFencingTargeted, A::kLeaveDrain, A::kEnterEpoch,
       A::kKeepProgress, A::kArmDeadline, A::kStartFence),
    go(kFence, E::kTargetNext, S::kFencingTargeted, A::kEnterEpoch, A::kKeepProgress),
    go(S::kSeeking, E::kTargetNext, S::kResuming, A::kEnterEpoch, A::kKeepProgress, A::kCommit,
       A::kSendProgress, A::kRequestKeys),
    go(S::kResuming, E::kTargetNext, S::kFencingTargeted, A::kEnterEpoch, A::kKeepProgress,
       A::kStartFence),
    never(kLeaderOnly, E::kTargetNext, kRole),

    stay({S::kUnbound, kOver}, E::kTargetCurrent, A::kSendRefuse),
    ignore({S::kActive, S::kHeld, S::kFencingTargeted, S::kResuming}, E::kTargetCurrent, kCopy),
    go(S::kFencing, E::kTargetCurrent, S::kFencingTargeted, A::kKeepProgress),
    go(S::kSeeking, E::kTargetCurrent, S::kResuming, A::kKeepProgress, A::kCommit, A::kSendProgress,
       A::kRequestKeys),
    never(kLeaderOnly, E::kTargetCurrent, kRole),

    ignore(S::kUnbound, E::kPeerProgressCurrent, kLate),
    go(S::kExchanging, E::kPeerProgressCurrent, S::kResuming, A::kKeepProgress, A::kRequestKeys),
    ignore({S::kActive, S::kDraining, S::kResuming}, E::kPeerProgressCurrent, kCopy),
    ignore({S::kFencing, S::kSeeking}, E::kPeerProgressCurrent,
           "it answers a Progress that is not sent yet (C11)"),
    never(kFollowerOnly, E::kPeerProgressCurrent, kRole),
    stay(kOver, E::kPeerProgressCurrent, A::kSendRefuse),

    ignore({S::kUnbound, S::kActive, kParked, kLeaving, kOver}, E::kPeerMessageStale,
           "an old epoch's message changes nothing (C8)"),

    ignore(S::kUnbound, E::kPeerRefused, "nothing was asked"),
    // The peer has failed after the exchange.
    go(S::kActive, E::kPeerRefused, S::kFailed, A::kFail),
    go(kParked, E::kPeerRefused, S::kFailed, A::kLeaveDrain, A::kFail),
    go(kLeaving, E::kPeerRefused, S::kFailed, A::kCancelDeadline, A::kFail),
    ignore(kOver, E::kPeerRefused, kOverReason),

    ignore(S::kUnbound, E::kPeerClosed, "nothing was bound"),
    // What is still posted fails on the wire, as it does with the stock library.
    go(S::kActive, E::kPeerClosed, S::kUnbound, A::kUnprotect),
    go(kParked, E::kPeerClosed, S::kUnbound, A::kLeaveDrain, A::kUnpark, A::kUnprotect),
    go(kLeaving, E::kPeerClosed, S::kFailed, A::kCancelDeadline, A::kFail),
    ignore(kOver, E::kPeerClosed, kOverReason),

    // A lost channel is no evidence of a dead peer: traffic goes on while the peer is looked for
    // again.
    ignore(S::kUnbound, E::kChannelLost, kUnprotected),
    stay(S::kActive, E::kChannelLost, A::kRebind),
    go(S::kDraining, E::kChannelLost, S::kActive, A::kLeaveDrain, A::kUnpark, A::kRebind),
    // The leader may have begun the round because it got this end's Drain (done). A request that is
    // posted now would be under way when the leader's Switch comes; if it is an atomic, it would be
    // lost. So the follower stays held until the watch ends the wait.
    stay(S::kHeld, E::kChannelLost, A::kRebind),
    // The messages of this round may be lost; a new connection repeats them. The deadline bounds
    // the wait.
    stay(kLeaving, E::kChannelLost, A::kRebind),
    ignore(kOver, E::kChannelLost, kOverReason),
};

using Table = std::array<std::array<Cell, kEvents>, kStates>;

constexpr bool complete() {
  std::array<std::array<int, kEvents>, kStates> seen{};
  for (const Row& row : kRows) {
    for (size_t i = 0; i < kStates; i++) {
      if (row.states.has(static_cast<S>(i))) ++seen[i][static_cast<size_t>(row.event)];
    }
  }
  return std::ranges::all_of(seen, [](const auto& state) {
    return std::ranges::all_of(state, [](int count) { return count == 1; });
  });
}
static_assert(complete(), "every state needs exactly one row for every event");

constexpr Table build() {
  Table table{};
  for (const Row& row : kRows) {
    for (size_t i = 0; i < kStates; i++) {
      if (!row.states.has(static_cast<S>(i))) continue;
      Cell& cell = table[i][static_cast<size_t>(row.event)];
      cell = row.cell;
      if (row.stays) cell.next = static_cast<S>(i);
    }
  }
  return table;
}
constexpr Table kTable = build();

constexpr const char* kStateNames[] = {"unbound",  "active",           "draining", "held",
                                       "fencing",  "fencing-targeted", "seeking",  "exchanging",
                                       "resuming", "failed",           "closed"};
constexpr const char* kEventNames[] = {"bound",
                                       "no-peer",
                                       "app-error",
                                       "app-closed",
                                       "path-fault",
                                       "better-path",
                                       "path-ready",
                                       "target-unusable",
                                       "drained",
                                       "drain-timeout",
                                       "fence-done",
                                       "fence-failed",
                                       "keys-ready",
                                       "replay-refused",
                                       "deadline",
                                       "peer-drain",
                                       "peer-drain-cancel",
                                       "peer-switch-next",
                                       "peer-switch-current",
                                       "target-next",
                                       "target-current",
                                       "peer-progress-current",
                                       "peer-message-stale",
                                       "peer-refused",
                                       "peer-closed",
                                       "channel-lost"};
constexpr const char* kActionNames[] = {
    "none",        "protect",       "unprotect",   "park",          "unpark",
    "watch-drain", "leave-drain",   "send-drain",  "send-drained",  "send-drain-cancel",
    "enter-epoch", "send-switch",   "start-fence", "arm-deadline",  "cancel-deadline",
    "seek-path",   "keep-progress", "commit",      "send-progress", "request-keys",
    "replay",      "fail",          "send-refuse", "send-close",    "flush-waiting",
    "rebind"};
static_assert(std::size(kStateNames) == kStates);
static_assert(std::size(kEventNames) == kEvents);
static_assert(std::size(kActionNames) == static_cast<size_t>(A::kCount));

}  // namespace

const Cell& step(State state, Event event) {
  return kTable[static_cast<size_t>(state)][static_cast<size_t>(event)];
}

const char* to_string(State state) {
  return kStateNames[static_cast<size_t>(state)];
}
const char* to_string(Event event) {
  return kEventNames[static_cast<size_t>(event)];
}
const char* to_string(Action action) {
  return kActionNames[static_cast<size_t>(action)];
}

}  // namespace shift::fsm

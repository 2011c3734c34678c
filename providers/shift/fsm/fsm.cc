// The table itself. Read it state by state; each line is one event.
#include "fsm/fsm.h"

namespace shift::fsm {
namespace {

using S = State;
using E = Event;
using A = Action;

struct Row {
  State state;
  Event event;
  Cell cell;
};

template <typename... Actions>
constexpr Row go(S state, E event, S next, Actions... actions) {
  static_assert(sizeof...(actions) <= kMaxActions);
  return {state, event, {Kind::kTransition, next, {actions...}, ""}};
}
constexpr Row ignore(S state, E event, const char* reason) {
  return {state, event, {Kind::kIgnore, state, {}, reason}};
}
constexpr Row never(S state, E event, const char* reason) {
  return {state, event, {Kind::kImpossible, state, {}, reason}};
}

constexpr const char* kStaleEpoch = "an old epoch's message changes nothing (C8)";
constexpr const char* kSwitching = "already leaving that path";
constexpr const char* kNoSwitch = "no switch is under way";
constexpr const char* kLateTimer = "the timer of a switch that has ended";
constexpr const char* kBounded =
    "the switch's deadline bounds the wait; a connection may come back";
constexpr const char* kOver = "the application has its error; nothing is masked any more";
constexpr const char* kGone = "the application gave the QP up";
constexpr const char* kOnce = "a group is bound once until it is unbound";
constexpr const char* kDuplicate = "messages travel on every connection; this is a copy";

constexpr Row kRows[] = {
    // ---- kUnbound: stock behaviour, the peer is being looked for
    go(S::kUnbound, E::kBound, S::kArmed),
    ignore(S::kUnbound, E::kLocalFault, "unprotected: the application sees the stock error (C10)"),
    go(S::kUnbound, E::kAppError, S::kClosed),
    go(S::kUnbound, E::kAppClosed, S::kClosed, A::kSendClose),
    go(S::kUnbound, E::kPeerSwitchNext, S::kUnbound, A::kSendRefuse),
    go(S::kUnbound, E::kPeerSwitchCurrent, S::kUnbound, A::kSendRefuse),
    go(S::kUnbound, E::kPeerProgressNext, S::kUnbound, A::kSendRefuse),
    go(S::kUnbound, E::kPeerProgressCurrent, S::kUnbound, A::kSendRefuse),
    ignore(S::kUnbound, E::kPeerMessageStale, kStaleEpoch),
    ignore(S::kUnbound, E::kPeerRefused, "nothing was asked"),
    ignore(S::kUnbound, E::kPeerClosed, "nothing was bound"),
    go(S::kUnbound, E::kChannelLost, S::kUnbound, A::kRebind),
    never(S::kUnbound, E::kFenceDone, kNoSwitch),
    never(S::kUnbound, E::kFenceFailed, kNoSwitch),
    never(S::kUnbound, E::kKeysReady, kNoSwitch),
    never(S::kUnbound, E::kReplayRefused, kNoSwitch),
    ignore(S::kUnbound, E::kBackupFault, "nothing uses the backup"),
    ignore(S::kUnbound, E::kDeadline, kLateTimer),

    // ---- kArmed: healthy and protected
    ignore(S::kArmed, E::kBound, kOnce),
    go(S::kArmed, E::kLocalFault, S::kFencing, A::kEnterEpoch, A::kStopPosting, A::kSendSwitch,
       A::kArmDeadline, A::kStartFence),
    go(S::kArmed, E::kAppError, S::kClosed, A::kSendClose),
    go(S::kArmed, E::kAppClosed, S::kClosed, A::kSendClose),
    go(S::kArmed, E::kPeerSwitchNext, S::kFencing, A::kEnterEpoch, A::kStopPosting, A::kSendSwitch,
       A::kArmDeadline, A::kStartFence),
    ignore(S::kArmed, E::kPeerSwitchCurrent, kDuplicate),
    go(S::kArmed, E::kPeerProgressNext, S::kFencingPeerReady, A::kEnterEpoch, A::kStopPosting,
       A::kSendSwitch, A::kArmDeadline, A::kKeepProgress, A::kStartFence),
    ignore(S::kArmed, E::kPeerProgressCurrent, kDuplicate),
    ignore(S::kArmed, E::kPeerMessageStale, kStaleEpoch),
    ignore(S::kArmed, E::kPeerRefused, "nothing was asked"),
    go(S::kArmed, E::kPeerClosed, S::kUnbound),
    // Not evidence of a dead peer: the job goes on, unprotected until the peer is found again.
    go(S::kArmed, E::kChannelLost, S::kUnbound, A::kRebind),
    never(S::kArmed, E::kFenceDone, kNoSwitch),
    never(S::kArmed, E::kFenceFailed, kNoSwitch),
    never(S::kArmed, E::kKeysReady, kNoSwitch),
    never(S::kArmed, E::kReplayRefused, kNoSwitch),
    go(S::kArmed, E::kBackupFault, S::kUnbound),
    ignore(S::kArmed, E::kDeadline, kLateTimer),

    // ---- kFencing: the old path is being shut
    never(S::kFencing, E::kBound, kOnce),
    ignore(S::kFencing, E::kLocalFault, kSwitching),
    go(S::kFencing, E::kAppError, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    go(S::kFencing, E::kAppClosed, S::kClosed, A::kCancelDeadline, A::kSendClose),
    go(S::kFencing, E::kPeerSwitchNext, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    ignore(S::kFencing, E::kPeerSwitchCurrent, "crossing detections: it is the answer"),
    go(S::kFencing, E::kPeerProgressNext, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    go(S::kFencing, E::kPeerProgressCurrent, S::kFencingPeerReady, A::kKeepProgress),
    ignore(S::kFencing, E::kPeerMessageStale, kStaleEpoch),
    go(S::kFencing, E::kPeerRefused, S::kFailed, A::kCancelDeadline, A::kFail),
    go(S::kFencing, E::kPeerClosed, S::kFailed, A::kCancelDeadline, A::kFail),
    ignore(S::kFencing, E::kChannelLost, kBounded),
    go(S::kFencing, E::kFenceDone, S::kExchanging, A::kRepostReceives, A::kSendProgress),
    go(S::kFencing, E::kFenceFailed, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    never(S::kFencing, E::kKeysReady, "keys are asked for after the exchange"),
    never(S::kFencing, E::kReplayRefused, "the replay comes after the exchange"),
    go(S::kFencing, E::kBackupFault, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    go(S::kFencing, E::kDeadline, S::kFailed, A::kFail, A::kSendRefuse),

    // ---- kFencingPeerReady: as kFencing, the peer's counter is already here
    never(S::kFencingPeerReady, E::kBound, kOnce),
    ignore(S::kFencingPeerReady, E::kLocalFault, kSwitching),
    go(S::kFencingPeerReady, E::kAppError, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    go(S::kFencingPeerReady, E::kAppClosed, S::kClosed, A::kCancelDeadline, A::kSendClose),
    go(S::kFencingPeerReady, E::kPeerSwitchNext, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    ignore(S::kFencingPeerReady, E::kPeerSwitchCurrent, kDuplicate),
    go(S::kFencingPeerReady, E::kPeerProgressNext, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    ignore(S::kFencingPeerReady, E::kPeerProgressCurrent, kDuplicate),
    ignore(S::kFencingPeerReady, E::kPeerMessageStale, kStaleEpoch),
    go(S::kFencingPeerReady, E::kPeerRefused, S::kFailed, A::kCancelDeadline, A::kFail),
    go(S::kFencingPeerReady, E::kPeerClosed, S::kFailed, A::kCancelDeadline, A::kFail),
    ignore(S::kFencingPeerReady, E::kChannelLost, kBounded),
    go(S::kFencingPeerReady, E::kFenceDone, S::kResuming, A::kRepostReceives, A::kSendProgress,
       A::kRequestKeys),
    go(S::kFencingPeerReady, E::kFenceFailed, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    never(S::kFencingPeerReady, E::kKeysReady, "keys are asked for after the exchange"),
    never(S::kFencingPeerReady, E::kReplayRefused, "the replay comes after the exchange"),
    go(S::kFencingPeerReady, E::kBackupFault, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    go(S::kFencingPeerReady, E::kDeadline, S::kFailed, A::kFail, A::kSendRefuse),

    // ---- kExchanging: fenced, waiting for the peer's counter
    never(S::kExchanging, E::kBound, kOnce),
    ignore(S::kExchanging, E::kLocalFault, kSwitching),
    ignore(S::kExchanging, E::kAppError, "the old path is drained and its completions are stale"),
    go(S::kExchanging, E::kAppClosed, S::kClosed, A::kCancelDeadline, A::kSendClose),
    go(S::kExchanging, E::kPeerSwitchNext, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    ignore(S::kExchanging, E::kPeerSwitchCurrent, "crossing detections: its progress follows"),
    go(S::kExchanging, E::kPeerProgressNext, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    go(S::kExchanging, E::kPeerProgressCurrent, S::kResuming, A::kKeepProgress, A::kRequestKeys),
    ignore(S::kExchanging, E::kPeerMessageStale, kStaleEpoch),
    go(S::kExchanging, E::kPeerRefused, S::kFailed, A::kCancelDeadline, A::kFail),
    go(S::kExchanging, E::kPeerClosed, S::kFailed, A::kCancelDeadline, A::kFail),
    ignore(S::kExchanging, E::kChannelLost, kBounded),
    never(S::kExchanging, E::kFenceDone, "the fence is done once"),
    never(S::kExchanging, E::kFenceFailed, "the fence is done once"),
    never(S::kExchanging, E::kKeysReady, "keys are asked for after the exchange"),
    // Receives could not be re-posted.
    go(S::kExchanging, E::kReplayRefused, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    go(S::kExchanging, E::kBackupFault, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    go(S::kExchanging, E::kDeadline, S::kFailed, A::kFail, A::kSendRefuse),

    // ---- kResuming: both fenced, the last keys are on their way
    never(S::kResuming, E::kBound, kOnce),
    ignore(S::kResuming, E::kLocalFault, kSwitching),
    ignore(S::kResuming, E::kAppError, "the old path is drained and its completions are stale"),
    go(S::kResuming, E::kAppClosed, S::kClosed, A::kCancelDeadline, A::kSendClose),
    go(S::kResuming, E::kPeerSwitchNext, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    ignore(S::kResuming, E::kPeerSwitchCurrent, kDuplicate),
    go(S::kResuming, E::kPeerProgressNext, S::kFailed, A::kCancelDeadline, A::kFail,
       A::kSendRefuse),
    ignore(S::kResuming, E::kPeerProgressCurrent, kDuplicate),
    ignore(S::kResuming, E::kPeerMessageStale, kStaleEpoch),
    go(S::kResuming, E::kPeerRefused, S::kFailed, A::kCancelDeadline, A::kFail),
    go(S::kResuming, E::kPeerClosed, S::kFailed, A::kCancelDeadline, A::kFail),
    ignore(S::kResuming, E::kChannelLost, kBounded),
    never(S::kResuming, E::kFenceDone, "the fence is done once"),
    never(S::kResuming, E::kFenceFailed, "the fence is done once"),
    go(S::kResuming, E::kKeysReady, S::kOnBackup, A::kCancelDeadline, A::kReplay),
    go(S::kResuming, E::kReplayRefused, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    go(S::kResuming, E::kBackupFault, S::kFailed, A::kCancelDeadline, A::kFail, A::kSendRefuse),
    go(S::kResuming, E::kDeadline, S::kFailed, A::kFail, A::kSendRefuse),

    // ---- kOnBackup: traffic on the backup path
    never(S::kOnBackup, E::kBound, kOnce),
    ignore(S::kOnBackup, E::kLocalFault, "the default path is not in use"),
    go(S::kOnBackup, E::kAppError, S::kClosed, A::kSendClose),
    go(S::kOnBackup, E::kAppClosed, S::kClosed, A::kSendClose),
    // The peer lost the backup too and there is no further member (C6).
    go(S::kOnBackup, E::kPeerSwitchNext, S::kFailed, A::kFail, A::kSendRefuse),
    ignore(S::kOnBackup, E::kPeerSwitchCurrent, kDuplicate),
    go(S::kOnBackup, E::kPeerProgressNext, S::kFailed, A::kFail, A::kSendRefuse),
    ignore(S::kOnBackup, E::kPeerProgressCurrent, kDuplicate),
    ignore(S::kOnBackup, E::kPeerMessageStale, kStaleEpoch),
    go(S::kOnBackup, E::kPeerRefused, S::kFailed, A::kFail),
    ignore(S::kOnBackup, E::kPeerClosed, "what is still posted fails on the wire, as stock does"),
    ignore(S::kOnBackup, E::kChannelLost, "the data path does not need it"),
    never(S::kOnBackup, E::kFenceDone, "the fence is done once"),
    never(S::kOnBackup, E::kFenceFailed, "the fence is done once"),
    ignore(S::kOnBackup, E::kKeysReady, "keys asked for after the switch; ops/ waits for them"),
    go(S::kOnBackup, E::kReplayRefused, S::kFailed, A::kFail, A::kSendRefuse),
    go(S::kOnBackup, E::kBackupFault, S::kFailed, A::kFail, A::kSendRefuse),
    ignore(S::kOnBackup, E::kDeadline, kLateTimer),

    // ---- kFailed: the application has the original error
    ignore(S::kFailed, E::kBound, kOver),
    ignore(S::kFailed, E::kLocalFault, kOver),
    ignore(S::kFailed, E::kAppError, kOver),
    go(S::kFailed, E::kAppClosed, S::kClosed, A::kSendClose),
    go(S::kFailed, E::kPeerSwitchNext, S::kFailed, A::kSendRefuse),
    go(S::kFailed, E::kPeerSwitchCurrent, S::kFailed, A::kSendRefuse),
    go(S::kFailed, E::kPeerProgressNext, S::kFailed, A::kSendRefuse),
    go(S::kFailed, E::kPeerProgressCurrent, S::kFailed, A::kSendRefuse),
    ignore(S::kFailed, E::kPeerMessageStale, kStaleEpoch),
    ignore(S::kFailed, E::kPeerRefused, kOver),
    ignore(S::kFailed, E::kPeerClosed, kOver),
    ignore(S::kFailed, E::kChannelLost, kOver),
    ignore(S::kFailed, E::kFenceDone, kOver),
    ignore(S::kFailed, E::kFenceFailed, kOver),
    ignore(S::kFailed, E::kKeysReady, kOver),
    ignore(S::kFailed, E::kReplayRefused, kOver),
    ignore(S::kFailed, E::kBackupFault, kOver),
    ignore(S::kFailed, E::kDeadline, kLateTimer),

    // ---- kClosed: the application gave the QP up
    ignore(S::kClosed, E::kBound, kGone),
    ignore(S::kClosed, E::kLocalFault, kGone),
    ignore(S::kClosed, E::kAppError, kGone),
    ignore(S::kClosed, E::kAppClosed, kGone),
    go(S::kClosed, E::kPeerSwitchNext, S::kClosed, A::kSendRefuse),
    go(S::kClosed, E::kPeerSwitchCurrent, S::kClosed, A::kSendRefuse),
    go(S::kClosed, E::kPeerProgressNext, S::kClosed, A::kSendRefuse),
    go(S::kClosed, E::kPeerProgressCurrent, S::kClosed, A::kSendRefuse),
    ignore(S::kClosed, E::kPeerMessageStale, kStaleEpoch),
    ignore(S::kClosed, E::kPeerRefused, kGone),
    ignore(S::kClosed, E::kPeerClosed, kGone),
    ignore(S::kClosed, E::kChannelLost, kGone),
    ignore(S::kClosed, E::kFenceDone, kGone),
    ignore(S::kClosed, E::kFenceFailed, kGone),
    ignore(S::kClosed, E::kKeysReady, kGone),
    ignore(S::kClosed, E::kReplayRefused, kGone),
    ignore(S::kClosed, E::kBackupFault, kGone),
    ignore(S::kClosed, E::kDeadline, kLateTimer),
};

constexpr size_t kStates = static_cast<size_t>(S::kCount);
constexpr size_t kEvents = static_cast<size_t>(E::kCount);
using Table = std::array<std::array<Cell, kEvents>, kStates>;

constexpr bool complete() {
  std::array<std::array<int, kEvents>, kStates> seen{};
  for (const Row& row : kRows) {
    ++seen[static_cast<size_t>(row.state)][static_cast<size_t>(row.event)];
  }
  for (const auto& state : seen) {
    for (int count : state) {
      if (count != 1) return false;
    }
  }
  return true;
}
static_assert(complete(), "every state needs exactly one row for every event");

constexpr Table build() {
  Table table{};
  for (const Row& row : kRows) {
    table[static_cast<size_t>(row.state)][static_cast<size_t>(row.event)] = row.cell;
  }
  return table;
}
constexpr Table kTable = build();

constexpr const char* kStateNames[] = {"unbound",    "armed",    "fencing",   "fencing-peer-ready",
                                       "exchanging", "resuming", "on-backup", "failed",
                                       "closed"};
constexpr const char* kEventNames[] = {"bound",
                                       "local-fault",
                                       "app-error",
                                       "app-closed",
                                       "peer-switch-next",
                                       "peer-switch-current",
                                       "peer-progress-next",
                                       "peer-progress-current",
                                       "peer-message-stale",
                                       "peer-refused",
                                       "peer-closed",
                                       "channel-lost",
                                       "fence-done",
                                       "fence-failed",
                                       "keys-ready",
                                       "replay-refused",
                                       "backup-fault",
                                       "deadline"};
constexpr const char* kActionNames[] = {
    "none",         "enter-epoch",     "stop-posting",  "send-switch",     "start-fence",
    "arm-deadline", "cancel-deadline", "keep-progress", "repost-receives", "send-progress",
    "request-keys", "replay",          "fail",          "send-refuse",     "send-close",
    "rebind"};
static_assert(std::size(kStateNames) == kStates);
static_assert(std::size(kEventNames) == kEvents);
static_assert(std::size(kActionNames) == static_cast<size_t>(A::kRebind) + 1);

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

// Checks properties of whole runs of one end, in either role. It takes every sequence of events of
// any length, by walking the product of the table and a small monitor until it finds nothing new.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "fsm/test/table.h"

namespace shift::fsm {
namespace {

enum class Role : uint8_t { kLeader, kFollower };
// The outcome of kCommit.
enum class Commit : uint8_t { kDone, kUnusable, kKeyMissing, kCount };

// What has happened so far, as far as the properties need it.
struct Monitor {
  Role role = Role::kLeader;
  State state = State::kActive;
  bool met = false;       // the peer has proved itself
  bool committed = true;  // this end is committed to a path
  bool fencing = false;   // a fence is under way: kStartFence has not been answered
  bool posting = true;    // the application's requests reach the NIC
  bool watching = false;  // a drain is being watched
  bool deadline = false;
  bool over = false;  // no further path will be made
  // These belong to the current epoch.
  bool kept = false, told = false, keys_asked = false, keys_ready = false;
  uint8_t fails = 0;  // saturates at 2

  auto operator<=>(const Monitor&) const = default;
};

// Can the coordinator feed this event now? An event that answers an action comes only after that
// action; an event from outside may come at any time.
bool can_happen(const Monitor& m, Event event) {
  if (event >= Event::kPeerDrain && !m.met) return false;  // C11: no peer has proved itself
  switch (event) {
    case Event::kBound:
    case Event::kNoPeer:
      return !m.met && !m.over;
    case Event::kBetterPath:
      return m.role == Role::kLeader && m.state == State::kActive && m.met;
    case Event::kPathReady:
      return m.role == Role::kLeader && m.state == State::kSeeking && m.met;
    case Event::kTargetUnusable:
      return false;  // apply() feeds it
    case Event::kDrained:
    case Event::kDrainTimeout:
      return m.watching;
    case Event::kFenceDone:
    case Event::kFenceFailed:
      return m.fencing && is_fencing(m.state);
    case Event::kKeysReady:
      return m.keys_asked && m.state == State::kResuming;
    case Event::kDeadline:
      return m.deadline;
    case Event::kPeerDrain:
    case Event::kPeerDrainCancel:
    case Event::kTargetNext:
    case Event::kTargetCurrent:
      return m.role == Role::kFollower;
    case Event::kPeerProgressCurrent:
      return m.role == Role::kLeader;
    default:
      return true;
  }
}

// Runs one action. False: the cell's remaining actions are not run.
bool run(Monitor& m, Action action, Commit commit, std::string* broken) {
  const auto demand = [&](bool holds, const char* rule) {
    if (!holds) *broken = rule;
  };
  switch (action) {
    case Action::kPark:
      m.posting = false;
      break;
    case Action::kUnpark:
      demand(m.committed && !m.fencing, "unparked onto a path that is being left");
      m.posting = true;
      break;
    case Action::kWatchDrain:
      demand(!m.posting, "a drain that never ends: the application still posts");
      m.watching = true;
      break;
    case Action::kLeaveDrain:
      demand(m.watching, "leaves a drain that is not watched");
      m.watching = false;
      break;
    case Action::kEnterEpoch:
      m.kept = m.told = m.keys_asked = m.keys_ready = false;
      break;
    case Action::kStartFence:
      demand(!m.fencing, "two fences at once");
      m.fencing = true;
      m.posting = false;
      break;
    case Action::kArmDeadline:
      m.deadline = true;
      break;
    case Action::kCancelDeadline:
      demand(m.deadline, "cancels a deadline that does not run");
      m.deadline = false;
      break;
    case Action::kKeepProgress:
      demand(!m.kept, "a second counter of one epoch replaces the first");
      m.kept = true;
      break;
    case Action::kCommit:
      demand(!m.committed && !m.fencing,
             "committed to a second path before the first is shut (C3)");
      // A target may turn out to be unusable before or after receives were posted on it.
      if (commit != Commit::kDone) return false;
      m.committed = true;
      break;
    case Action::kSendProgress:
      demand(m.committed, "the peer may replay before receives stand (C2)");
      demand(m.role == Role::kLeader || m.kept, "the follower answers what it has not heard");
      m.told = true;
      break;
    case Action::kRequestKeys:
      m.keys_asked = true;
      break;
    case Action::kReplay:
      demand(m.committed && !m.fencing, "replayed onto nothing");
      demand(m.kept, "replayed without the peer's counter of this epoch (C2, C8)");
      demand(m.told, "the peer was never told our counter");
      demand(m.keys_ready, "replayed without keys");
      demand(m.fails == 0, "replayed after the application got its error");
      m.posting = true;
      break;
    case Action::kFail:
      if (m.fails < 2) m.fails++;
      m.over = true;
      break;
    case Action::kUnprotect:
      m.over = m.met;
      break;
    default:
      break;
  }
  return true;
}

// Returns the monitor after the event; a rule that broke is named in *broken.
Monitor apply(Monitor m, Event event, Commit commit, std::string* broken) {
  const Cell& cell = step(m.state, event);
  if (cell.kind == Kind::kImpossible) *broken = "a cell called impossible is reached";
  if (event == Event::kBound) m.met = true;
  if (event == Event::kFenceDone || event == Event::kFenceFailed) m.fencing = false;
  if (event == Event::kFenceDone) m.committed = false;
  if (event == Event::kKeysReady) m.keys_ready = true;
  if (event == Event::kDeadline) m.deadline = false;
  if (event == Event::kAppClosed)
    m.fencing = false, m.over = true;  // the fence's answer is not awaited
  m.state = cell.next;
  for (Action action : actions_of(cell)) {
    if (run(m, action, commit, broken)) continue;
    return apply(m, commit == Commit::kUnusable ? Event::kTargetUnusable : Event::kReplayRefused,
                 commit, broken);
  }
  if (is_over(m.state)) m.fencing = false;
  return m;
}

struct Origin {
  Monitor before;
  Event event;
};
using Seen = std::map<Monitor, std::optional<Origin>>;

std::string path_to(const Seen& seen, Monitor m) {
  std::string path;
  for (auto origin = seen.at(m); origin; origin = seen.at(origin->before)) {
    path = std::string(to_string(origin->event)) + " " + path;
  }
  return (m.role == Role::kLeader ? "leader: " : "follower: ") + path;
}

Seen explore() {
  Seen seen;
  std::deque<Monitor> queue;
  for (Role role : {Role::kLeader, Role::kFollower}) {
    Monitor first;
    first.role = role;
    seen.emplace(first, std::nullopt);
    queue.push_back(first);
  }
  while (!queue.empty()) {
    const Monitor m = queue.front();
    queue.pop_front();
    for (Event event : all_events()) {
      if (!can_happen(m, event)) continue;
      for (size_t c = 0; c < static_cast<size_t>(Commit::kCount); c++) {
        const bool commits = has(step(m.state, event), Action::kCommit);
        if (c > 0 && !commits) break;
        std::string broken;
        const Monitor next = apply(m, event, static_cast<Commit>(c), &broken);
        EXPECT_EQ(broken, "") << path_to(seen, m) << to_string(event);
        if (seen.emplace(next, Origin{m, event}).second) queue.push_back(next);
      }
    }
  }
  return seen;
}

// The comments at the states promise this.
TEST(Paths, NoSequenceOfEventsBreaksARule) {
  const Seen seen = explore();
  EXPECT_GT(seen.size(), 50u);
  for (const auto& [m, origin] : seen) {
    const std::string where = path_to(seen, m);
    // C6: each state that waits has its bound, and no other state has a timer.
    EXPECT_EQ(m.deadline, is_leaving(m.state)) << where;
    EXPECT_EQ(m.watching, is_parked(m.state)) << where;
    EXPECT_EQ(m.fencing, is_fencing(m.state)) << where;
    EXPECT_EQ(m.fails, m.state == State::kFailed || (m.state == State::kClosed && m.fails > 0))
        << where;
    switch (m.state) {
      case State::kUnbound:
      case State::kActive:
        EXPECT_TRUE(m.posting && m.committed) << where;
        break;
      case State::kDraining:
      case State::kHeld:
        EXPECT_TRUE(!m.posting && m.committed) << where;
        EXPECT_EQ(m.role, m.state == State::kHeld ? Role::kFollower : Role::kLeader) << where;
        break;
      case State::kFencing:
        EXPECT_TRUE(!m.posting && !m.kept && !m.told) << where;
        break;
      case State::kFencingTargeted:
        EXPECT_TRUE(!m.posting && m.kept && !m.told && m.role == Role::kFollower) << where;
        break;
      case State::kSeeking:
        EXPECT_TRUE(!m.posting && !m.committed && !m.kept && !m.told) << where;
        break;
      case State::kExchanging:
        EXPECT_TRUE(!m.posting && m.committed && m.told && !m.kept) << where;
        EXPECT_EQ(m.role, Role::kLeader) << where;
        break;
      case State::kResuming:
        EXPECT_TRUE(!m.posting && m.committed && m.told && m.kept && m.keys_asked) << where;
        break;
      default:
        break;
    }
  }
}

// The walk above proves nothing if it does not get anywhere.
TEST(Paths, TheWalkReachesEveryState) {
  std::set<State> reached;
  for (const auto& [m, origin] : explore()) reached.insert(m.state);
  EXPECT_EQ(reached.size(), static_cast<size_t>(State::kCount));
}

// C7: in every protected state, a fault of the path begins the next round at once, or a round is
// under way.
TEST(Paths, AFaultAtAnyMomentIsTheNextRound) {
  for (State state : all_states()) {
    const Cell& cell = step(state, Event::kPathFault);
    if (state == State::kUnbound || is_over(state)) {
      EXPECT_EQ(cell.kind, Kind::kIgnore) << to_string(state);
    } else {
      EXPECT_TRUE(is_fencing(cell.next) || cell.next == State::kSeeking) << to_string(state);
    }
  }
}

}  // namespace
}  // namespace shift::fsm

// Properties of whole runs of one machine: every sequence of events of any length, by walking the
// product of the table and a small monitor until nothing new is found.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "fsm/test/table.h"

namespace shift::fsm {
namespace {

// What has happened so far, as far as the properties ask.
struct Monitor {
  State state = State::kArmed;
  bool fencing = false;  // kStartFence has not been answered
  bool fenced = false;
  bool progress_kept = false;
  bool receives_moved = false;
  bool progress_sent = false;
  bool keys_asked = false;
  bool keys_ready = false;
  bool deadline_armed = false;
  uint8_t epochs = 0, replays = 0, fails = 0;  // saturate at 2

  auto operator<=>(const Monitor&) const = default;
};

void count(uint8_t& counter) {
  if (counter < 2) counter++;
}

// Can the shell feed this event now? Only for events that answer an action; all others come from
// outside and may come at any time.
bool can_happen(const Monitor& m, Event event) {
  switch (event) {
    case Event::kBound:
      return m.state == State::kUnbound;
    case Event::kFenceDone:
    case Event::kFenceFailed:
      // A batch leaves groups out that are no longer waiting for it.
      return m.fencing && (m.state == State::kFencing || m.state == State::kFencingPeerReady);
    case Event::kKeysReady:
      return m.keys_asked;
    case Event::kReplayRefused:
      return m.receives_moved;  // by the receives, the keys or the replay itself
    default:
      return true;
  }
}

// The monitor after the event; a broken rule in *broken.
Monitor apply(Monitor m, Event event, std::string* broken) {
  const Cell& cell = step(m.state, event);
  if (cell.kind == Kind::kImpossible) *broken = "a cell called impossible is reached";
  if (event == Event::kFenceDone) m.fencing = false, m.fenced = true;
  if (event == Event::kFenceFailed) m.fencing = false;
  if (event == Event::kKeysReady && m.keys_asked) m.keys_ready = true;
  if (event == Event::kDeadline) m.deadline_armed = false;
  for (Action action : actions_of(cell)) {
    switch (action) {
      case Action::kEnterEpoch:
        count(m.epochs);
        break;
      case Action::kStartFence:
        if (m.fencing || m.fenced) *broken = "fenced twice";
        m.fencing = true;
        break;
      case Action::kKeepProgress:
        if (m.progress_kept) *broken = "a second counter replaces the first";
        m.progress_kept = true;
        break;
      case Action::kRepostReceives:
        if (!m.fenced) *broken = "receives moved before the fence";
        if (m.receives_moved) *broken = "receives moved twice (C2)";
        m.receives_moved = true;
        break;
      case Action::kSendProgress:
        if (!m.receives_moved) *broken = "the peer may replay before receives stand";
        m.progress_sent = true;
        break;
      case Action::kRequestKeys:
        m.keys_asked = true;
        break;
      case Action::kReplay:
        count(m.replays);
        if (m.replays > 1) *broken = "replayed twice (C2)";
        if (m.fails > 0) *broken = "replayed after the application got its error";
        if (!m.fenced) *broken = "replayed before our fence (C3)";
        if (!m.progress_kept) *broken = "replayed without the peer's counter (C2)";
        if (!m.keys_ready) *broken = "replayed without keys";
        if (!m.progress_sent) *broken = "the peer was never told our counter";
        break;
      case Action::kFail:
        count(m.fails);
        if (m.fails > 1) *broken = "failed twice";
        break;
      case Action::kArmDeadline:
        if (m.deadline_armed) *broken = "two deadlines";
        m.deadline_armed = true;
        break;
      case Action::kCancelDeadline:
        if (!m.deadline_armed) *broken = "cancels a deadline that does not run";
        m.deadline_armed = false;
        break;
      default:
        break;
    }
  }
  m.state = cell.next;
  return m;
}

struct Origin {
  Monitor before;
  Event event;
};

std::string path_to(const std::map<Monitor, std::optional<Origin>>& seen, Monitor m) {
  std::string path;
  for (auto origin = seen.at(m); origin; origin = seen.at(origin->before)) {
    path = std::string(to_string(origin->event)) + " " + path;
  }
  return path;
}

std::map<Monitor, std::optional<Origin>> explore() {
  std::map<Monitor, std::optional<Origin>> seen{{Monitor{}, std::nullopt}};
  std::deque<Monitor> queue{Monitor{}};
  while (!queue.empty()) {
    const Monitor m = queue.front();
    queue.pop_front();
    for (Event event : all_events()) {
      if (!can_happen(m, event)) continue;
      std::string broken;
      const Monitor next = apply(m, event, &broken);
      EXPECT_EQ(broken, "") << "armed, then: " << path_to(seen, m) << to_string(event);
      if (seen.emplace(next, Origin{m, event}).second) queue.push_back(next);
    }
  }
  return seen;
}

TEST(Paths, NoSequenceOfEventsBreaksARule) {
  const auto seen = explore();
  EXPECT_GT(seen.size(), 20u);
  for (const auto& [m, origin] : seen) {
    const std::string where = path_to(seen, m);
    const bool switching = m.state == State::kFencing || m.state == State::kFencingPeerReady ||
                           m.state == State::kExchanging || m.state == State::kResuming;
    // C6: what waits is bounded, and nothing else has a timer.
    EXPECT_EQ(m.deadline_armed, switching) << where;
    // What the states' comments promise.
    EXPECT_EQ(m.state == State::kOnBackup || m.fails + m.replays > 0 || m.state == State::kClosed,
              m.state == State::kOnBackup || m.state == State::kFailed || m.state == State::kClosed)
        << where;
    if (m.state == State::kOnBackup) {
      EXPECT_EQ(m.replays, 1) << where;
    }
    if (m.state == State::kFailed) {
      EXPECT_EQ(m.fails, 1) << where;
    }
    if (m.state == State::kFencing) {
      EXPECT_FALSE(m.progress_kept) << where;
    }
    if (m.state == State::kFencingPeerReady || m.state == State::kResuming) {
      EXPECT_TRUE(m.progress_kept) << where;
    }
    if (m.state == State::kExchanging) {
      EXPECT_TRUE(m.fenced && m.progress_sent && !m.progress_kept) << where;
    }
  }
}

// The walk above proves nothing if it does not get anywhere.
TEST(Paths, TheWalkReachesEveryOutcome) {
  std::set<State> reached;
  for (const auto& [m, origin] : explore()) reached.insert(m.state);
  EXPECT_EQ(reached.size(), static_cast<size_t>(State::kCount));
}

}  // namespace
}  // namespace shift::fsm

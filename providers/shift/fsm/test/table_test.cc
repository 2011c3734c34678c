// Properties of single cells of the table.
#include "fsm/test/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace shift::fsm {
namespace {

bool is_switching(State state) {
  return state == State::kFencing || state == State::kFencingPeerReady ||
         state == State::kExchanging || state == State::kResuming;
}

TEST(Table, EveryCellIsFilledAndSaysWhyItDoesNothing) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    EXPECT_NE(cell.kind, Kind::kEmpty) << cell_name(state, event);
    if (cell.kind == Kind::kTransition) return;
    EXPECT_EQ(cell.next, state) << cell_name(state, event);
    EXPECT_GT(std::strlen(cell.reason), 0u) << cell_name(state, event);
    EXPECT_TRUE(actions_of(cell).empty()) << cell_name(state, event);
  });
}

TEST(Table, NamesAreDistinct) {
  std::set<std::string> states, events, actions;
  for (State state : all_states()) states.insert(to_string(state));
  for (Event event : all_events()) events.insert(to_string(event));
  for (size_t i = 0; i <= static_cast<size_t>(Action::kRebind); i++) {
    actions.insert(to_string(static_cast<Action>(i)));
  }
  EXPECT_EQ(states.size(), static_cast<size_t>(State::kCount));
  EXPECT_EQ(events.size(), static_cast<size_t>(Event::kCount));
  EXPECT_EQ(actions.size(), static_cast<size_t>(Action::kRebind) + 1);
}

TEST(Table, EveryStateIsReachableFromTheFirst) {
  const auto reached = reachable_from(State::kUnbound);
  for (State state : all_states()) EXPECT_TRUE(reached.contains(state)) << to_string(state);
}

// C6: a switch can always end in the original error, in one step.
TEST(Table, EverySwitchingStateCanFail) {
  for (State state : all_states()) {
    if (!is_switching(state) && state != State::kOnBackup) continue;
    EXPECT_EQ(step(state, Event::kBackupFault).next, State::kFailed) << to_string(state);
    if (is_switching(state)) {
      EXPECT_EQ(step(state, Event::kDeadline).next, State::kFailed) << to_string(state);
    }
  }
}

TEST(Table, ClosedIsForEver) {
  for (Event event : all_events()) {
    EXPECT_EQ(step(State::kClosed, event).next, State::kClosed) << to_string(event);
  }
}

TEST(Table, FailedEndsOnlyByTheApplication) {
  for (Event event : all_events()) {
    const State expected = event == Event::kAppClosed ? State::kClosed : State::kFailed;
    EXPECT_EQ(step(State::kFailed, event).next, expected) << to_string(event);
  }
}

// C8: a stale message is a row that does nothing, in every state.
TEST(Table, StaleMessagesChangeNothing) {
  for (State state : all_states()) {
    EXPECT_EQ(step(state, Event::kPeerMessageStale).kind, Kind::kIgnore) << to_string(state);
  }
}

TEST(Table, LeavingTheDefaultPathEntersAnEpochStopsPostingAndFences) {
  int seen = 0;
  for_each_cell([&](State state, Event event, const Cell& cell) {
    if (is_switching(state) || !is_switching(cell.next)) return;
    seen++;
    EXPECT_EQ(state, State::kArmed) << cell_name(state, event);
    const auto actions = actions_of(cell);
    ASSERT_FALSE(actions.empty());
    // The messages that follow carry the new epoch.
    EXPECT_EQ(actions.front(), Action::kEnterEpoch) << cell_name(state, event);
    // The fence may answer at once: it comes last.
    EXPECT_EQ(actions.back(), Action::kStartFence) << cell_name(state, event);
    for (Action wanted : {Action::kStopPosting, Action::kSendSwitch, Action::kArmDeadline}) {
      EXPECT_TRUE(has(cell, wanted)) << cell_name(state, event) << to_string(wanted);
    }
  });
  EXPECT_EQ(seen, 3);
}

TEST(Table, AnEpochIsEnteredNowhereElse) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    if (!has(cell, Action::kEnterEpoch)) return;
    EXPECT_TRUE(state == State::kArmed && is_switching(cell.next)) << cell_name(state, event);
  });
}

TEST(Table, TheDeadlineRunsExactlyWhileSwitching) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    const bool ends = is_switching(state) && !is_switching(cell.next);
    const bool starts = !is_switching(state) && is_switching(cell.next);
    EXPECT_EQ(has(cell, Action::kArmDeadline), starts) << cell_name(state, event);
    EXPECT_EQ(has(cell, Action::kCancelDeadline), ends && event != Event::kDeadline)
        << cell_name(state, event);
  });
}

TEST(Table, ReceivesAreOnTheBackupBeforeThePeerIsToldToReplay) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    const auto actions = actions_of(cell);
    const auto receives = std::find(actions.begin(), actions.end(), Action::kRepostReceives);
    const auto progress = std::find(actions.begin(), actions.end(), Action::kSendProgress);
    EXPECT_EQ(receives == actions.end(), progress == actions.end()) << cell_name(state, event);
    EXPECT_LE(receives, progress) << cell_name(state, event);
    if (progress != actions.end()) {
      EXPECT_EQ(event, Event::kFenceDone) << cell_name(state, event);
    }
  });
}

TEST(Table, FailingIsTheOnlyWayIntoFailed) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    const bool enters = cell.next == State::kFailed && state != State::kFailed;
    EXPECT_EQ(has(cell, Action::kFail), enters) << cell_name(state, event);
  });
}

// C6: a peer that may already be on the backup learns of it, unless it said so itself.
TEST(Table, FailingTellsThePeer) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    if (!has(cell, Action::kFail)) return;
    const bool peer_knows = event == Event::kPeerRefused || event == Event::kPeerClosed;
    EXPECT_EQ(has(cell, Action::kSendRefuse), !peer_knows) << cell_name(state, event);
  });
}

TEST(Epoch, ComparesWithWrapAround) {
  for (uint32_t own : {0u, 1u, 7u, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu}) {
    EXPECT_EQ(compare_epoch(own, own), EpochIs::kCurrent) << own;
    EXPECT_EQ(compare_epoch(own + 1, own), EpochIs::kNext) << own;
    EXPECT_EQ(compare_epoch(own - 1, own), EpochIs::kStale) << own;
    // One that cannot exist is as good as old (C11).
    EXPECT_EQ(compare_epoch(own + 2, own), EpochIs::kStale) << own;
    EXPECT_EQ(compare_epoch(own + 0x80000000u, own), EpochIs::kStale) << own;
  }
}

}  // namespace
}  // namespace shift::fsm

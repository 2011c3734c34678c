// Checks properties of single cells of the table.
#include "fsm/test/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace shift::fsm {
namespace {

TEST(Table, EveryCellIsFilledAndSaysWhyItDoesNothing) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    EXPECT_NE(cell.kind, Kind::kEmpty) << cell_name(state, event);
    if (cell.kind == Kind::kTransition) return;
    EXPECT_EQ(cell.next, state) << cell_name(state, event);
    EXPECT_GT(std::strlen(cell.reason), 0u) << cell_name(state, event);
    EXPECT_TRUE(actions_of(cell).empty()) << cell_name(state, event);
  });
}

// kNone stands only after a cell's last action.
TEST(Table, ActionsHaveNoGaps) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    const auto end = std::find(cell.actions.begin(), cell.actions.end(), Action::kNone);
    EXPECT_TRUE(std::all_of(end, cell.actions.end(), [](Action a) { return a == Action::kNone; }))
        << cell_name(state, event);
  });
}

TEST(Table, NamesAreDistinct) {
  std::set<std::string> states, events, actions;
  for (State state : all_states()) states.insert(to_string(state));
  for (Event event : all_events()) events.insert(to_string(event));
  for (Action action : all_actions()) actions.insert(to_string(action));
  EXPECT_EQ(states.size(), static_cast<size_t>(State::kCount));
  EXPECT_EQ(events.size(), static_cast<size_t>(Event::kCount));
  EXPECT_EQ(actions.size(), static_cast<size_t>(Action::kCount));
}

TEST(Table, EveryStateIsReachableFromTheFirst) {
  const auto reached = reachable_from(State::kUnbound);
  for (State state : all_states()) EXPECT_TRUE(reached.contains(state)) << to_string(state);
}

TEST(Table, EveryActionIsUsed) {
  std::set<Action> used;
  for_each_cell([&](State, Event, const Cell& cell) {
    for (Action action : actions_of(cell)) used.insert(action);
  });
  EXPECT_EQ(used.size(), static_cast<size_t>(Action::kCount) - 1);  // all but kNone
}

// C6: a round can always end in the original error, in one step; a drain can be called off.
TEST(Table, EveryWaitIsBounded) {
  for (State state : all_states()) {
    if (is_leaving(state)) {
      EXPECT_EQ(step(state, Event::kDeadline).next, State::kFailed) << to_string(state);
      EXPECT_TRUE(has(step(state, Event::kDeadline), Action::kFail)) << to_string(state);
    }
    if (is_parked(state)) {
      EXPECT_EQ(step(state, Event::kDrainTimeout).next, State::kActive) << to_string(state);
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

// C8: in every state, a stale message changes nothing.
TEST(Table, StaleMessagesChangeNothing) {
  for (State state : all_states()) {
    EXPECT_EQ(step(state, Event::kPeerMessageStale).kind, Kind::kIgnore) << to_string(state);
  }
}

// ---- rounds

TEST(Table, LeavingAPathEntersAnEpochFirstAndFencesLast) {
  int seen = 0;
  for_each_cell([&](State state, Event event, const Cell& cell) {
    if (is_leaving(state) || !is_leaving(cell.next)) return;
    seen++;
    const auto actions = actions_of(cell);
    ASSERT_FALSE(actions.empty()) << cell_name(state, event);
    // The messages that follow carry the new epoch. Only a drain is left before that.
    const size_t first = is_parked(state) ? 1 : 0;
    EXPECT_EQ(actions.at(first), Action::kEnterEpoch) << cell_name(state, event);
    // The fence may answer at once.
    EXPECT_EQ(actions.back(), Action::kStartFence) << cell_name(state, event);
    EXPECT_TRUE(has(cell, Action::kArmDeadline)) << cell_name(state, event);
    EXPECT_TRUE(is_fencing(cell.next)) << cell_name(state, event);
  });
  EXPECT_GT(seen, 8);
}

// An epoch is entered exactly where a round begins, or where a further fault begins the next one.
TEST(Table, AnEpochIsEnteredExactlyWhereARoundBegins) {
  constexpr Event kRounds[] = {Event::kPathFault, Event::kDrained, Event::kTargetUnusable,
                               Event::kPeerSwitchNext, Event::kTargetNext};
  for_each_cell([&](State state, Event event, const Cell& cell) {
    const bool begins = std::ranges::find(kRounds, event) != std::end(kRounds) &&
                        cell.kind == Kind::kTransition && is_leaving(cell.next);
    const bool keeps = event == Event::kDrained && state == State::kHeld;
    EXPECT_EQ(has(cell, Action::kEnterEpoch), begins && !keeps) << cell_name(state, event);
  });
}

// The peer is told of a round, unless it began that round or takes part in it already.
TEST(Table, AnEpochOfOurOwnIsToldToThePeer) {
  for_each_cell([&](State state, Event event, const Cell& cell) {
    if (!has(cell, Action::kEnterEpoch)) return;
    // The leader has named the target: this end's Progress is the answer.
    EXPECT_EQ(has(cell, Action::kSendSwitch), event != Event::kTargetNext)
        << cell_name(state, event);
  });
}

// An end that is committed to a path leaves it through a fence only (C3).
TEST(Table, OnlyAFenceLeavesTheCommittedPath) {
  const auto committed = [](State s) {
    return s == State::kActive || is_parked(s) || is_committed(s);
  };
  for_each_cell([&](State state, Event event, const Cell& cell) {
    if (cell.kind != Kind::kTransition) return;
    const bool fences = has(cell, Action::kStartFence);
    if (committed(state) && is_leaving(cell.next) && cell.next != state) {
      const bool goes_on = state == State::kExchanging && cell.next == State::kResuming;
      EXPECT_EQ(fences, !goes_on) << cell_name(state, event);
    } else {
      EXPECT_FALSE(fences) << cell_name(state, event);
    }
    // Nothing but the fence's proof leads to the states that are committed to no path.
    if (is_fencing(state) && !is_fencing(cell.next) && is_leaving(cell.next)) {
      EXPECT_EQ(event, Event::kFenceDone) << cell_name(state, event);
    }
  });
}

TEST(Table, ADeadlineRunsExactlyWhileAPathIsLeft) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    if (cell.kind != Kind::kTransition) return;
    const bool ends = is_leaving(state) && !is_leaving(cell.next);
    EXPECT_EQ(has(cell, Action::kCancelDeadline), ends && event != Event::kDeadline)
        << cell_name(state, event);
    if (!is_leaving(state) && is_leaving(cell.next)) {
      EXPECT_TRUE(has(cell, Action::kArmDeadline)) << cell_name(state, event);
    }
    if (has(cell, Action::kArmDeadline)) {
      EXPECT_TRUE(is_leaving(cell.next)) << cell_name(state, event);
    }
  });
}

TEST(Table, ADrainIsWatchedExactlyWhileParked) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    if (cell.kind != Kind::kTransition) return;
    EXPECT_EQ(has(cell, Action::kLeaveDrain), is_parked(state) && !is_parked(cell.next))
        << cell_name(state, event);
    EXPECT_EQ(has(cell, Action::kWatchDrain), !is_parked(state) && is_parked(cell.next))
        << cell_name(state, event);
    EXPECT_EQ(has(cell, Action::kUnpark),
              is_parked(state) && (cell.next == State::kActive || cell.next == State::kUnbound))
        << cell_name(state, event);
  });
}

TEST(Table, ReceivesStandOnTheTargetBeforeThePeerIsToldToReplay) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    const auto actions = actions_of(cell);
    const auto commit = std::ranges::find(actions, Action::kCommit);
    const auto progress = std::ranges::find(actions, Action::kSendProgress);
    EXPECT_EQ(commit == actions.end(), progress == actions.end()) << cell_name(state, event);
    EXPECT_LE(commit, progress) << cell_name(state, event);
    EXPECT_EQ(commit != actions.end(), is_committed(cell.next) && !is_committed(state))
        << cell_name(state, event);
  });
}

TEST(Table, FailingIsTheOnlyWayIntoFailed) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    const bool enters = cell.next == State::kFailed && state != State::kFailed;
    EXPECT_EQ(has(cell, Action::kFail), enters) << cell_name(state, event);
  });
}

// C6: a peer that may already be on the next path is told, unless the peer itself said so first.
TEST(Table, FailingTellsThePeer) {
  for_each_cell([](State state, Event event, const Cell& cell) {
    if (!has(cell, Action::kFail)) return;
    const bool peer_knows = event == Event::kPeerRefused || event == Event::kPeerClosed;
    EXPECT_EQ(has(cell, Action::kSendRefuse), !peer_knows) << cell_name(state, event);
  });
}

// ---- roles

TEST(Table, AStateOfOneRoleIsEnteredByThatRolesEventsOnly) {
  constexpr Event kFollowers[] = {Event::kPeerDrain, Event::kTargetNext, Event::kTargetCurrent};
  constexpr Event kLeaders[] = {Event::kBetterPath, Event::kPathReady};
  for_each_cell([&](State state, Event event, const Cell& cell) {
    if (cell.next == state || cell.kind != Kind::kTransition) return;
    if (cell.next == State::kHeld || cell.next == State::kFencingTargeted) {
      EXPECT_NE(std::ranges::find(kFollowers, event), std::end(kFollowers))
          << cell_name(state, event);
    }
    if (cell.next == State::kDraining || cell.next == State::kExchanging) {
      EXPECT_NE(std::ranges::find(kLeaders, event), std::end(kLeaders)) << cell_name(state, event);
    }
  });
}

TEST(Table, TheOtherRolesEventsAreImpossibleOrNothing) {
  for (State state : {State::kDraining, State::kExchanging}) {
    for (Event event : {Event::kTargetNext, Event::kTargetCurrent}) {
      EXPECT_EQ(step(state, event).kind, Kind::kImpossible) << cell_name(state, event);
    }
  }
  for (State state : {State::kHeld, State::kFencingTargeted}) {
    EXPECT_EQ(step(state, Event::kPeerProgressCurrent).kind, Kind::kImpossible) << to_string(state);
    EXPECT_NE(step(state, Event::kPathReady).kind, Kind::kTransition) << to_string(state);
    EXPECT_NE(step(state, Event::kBetterPath).kind, Kind::kTransition) << to_string(state);
  }
}

TEST(Epoch, ComparesWithWrapAround) {
  for (uint32_t own : {0u, 1u, 7u, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu}) {
    EXPECT_EQ(compare_epoch(own, own), EpochIs::kCurrent) << own;
    // However far ahead is kNext: the peer may have seen several faults.
    for (uint32_t ahead : {1u, 2u, 1000u, 1u << 16}) {
      EXPECT_EQ(compare_epoch(own + ahead, own), EpochIs::kNext) << own << " + " << ahead;
      EXPECT_EQ(compare_epoch(own - ahead, own), EpochIs::kStale) << own << " - " << ahead;
    }
    // An epoch that cannot exist is treated as an old one (C11).
    EXPECT_EQ(compare_epoch(own + (1u << 16) + 1, own), EpochIs::kStale) << own;
    EXPECT_EQ(compare_epoch(own + 0x80000000u, own), EpochIs::kStale) << own;
  }
}

}  // namespace
}  // namespace shift::fsm

// Helpers for the tests of this folder: they walk the failure state machine's table.
#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "fsm/fsm.h"

namespace shift::fsm {

inline std::vector<State> all_states() {
  std::vector<State> states;
  for (size_t i = 0; i < static_cast<size_t>(State::kCount); i++) {
    states.push_back(static_cast<State>(i));
  }
  return states;
}

inline std::vector<Event> all_events() {
  std::vector<Event> events;
  for (size_t i = 0; i < static_cast<size_t>(Event::kCount); i++) {
    events.push_back(static_cast<Event>(i));
  }
  return events;
}

inline std::vector<Action> all_actions() {
  std::vector<Action> actions;
  for (size_t i = 0; i < static_cast<size_t>(Action::kCount); i++) {
    actions.push_back(static_cast<Action>(i));
  }
  return actions;
}

// Sets of states, as the tests name them. fsm.h has such sets, too; the tests do not use them, so
// that a mistake there shows.
inline bool is_parked(State s) {
  return s == State::kDraining || s == State::kHeld;
}
inline bool is_fencing(State s) {
  return s == State::kFencing || s == State::kFencingTargeted;
}
inline bool is_committed(State s) {
  return s == State::kExchanging || s == State::kResuming;
}
inline bool is_leaving(State s) {
  return is_fencing(s) || s == State::kSeeking || is_committed(s);
}
inline bool is_over(State s) {
  return s == State::kFailed || s == State::kClosed;
}

inline std::vector<Action> actions_of(const Cell& cell) {
  std::vector<Action> actions;
  for (Action action : cell.actions) {
    if (action != Action::kNone) actions.push_back(action);
  }
  return actions;
}

inline bool has(const Cell& cell, Action wanted) {
  for (Action action : cell.actions) {
    if (action == wanted) return true;
  }
  return false;
}

inline std::string cell_name(State state, Event event) {
  return std::string(to_string(state)) + " + " + to_string(event) + " ";
}

template <typename F>
void for_each_cell(F visit) {
  for (State state : all_states()) {
    for (Event event : all_events()) visit(state, event, step(state, event));
  }
}

inline std::set<State> reachable_from(State first) {
  std::set<State> seen{first};
  std::deque<State> queue{first};
  while (!queue.empty()) {
    const State state = queue.front();
    queue.pop_front();
    for (Event event : all_events()) {
      const Cell& cell = step(state, event);
      if (cell.kind == Kind::kTransition && seen.insert(cell.next).second) {
        queue.push_back(cell.next);
      }
    }
  }
  return seen;
}

}  // namespace shift::fsm

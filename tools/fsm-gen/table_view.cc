#include "table_view.h"

namespace shift::fsm_gen {

using fsm::Cell;
using fsm::Event;
using fsm::Kind;
using fsm::State;

std::map<Edge, std::vector<Event>> edges() {
  std::map<Edge, std::vector<Event>> edges;
  for (State state : all<State>()) {
    for (Event event : all<Event>()) {
      const Cell& cell = fsm::step(state, event);
      if (cell.kind == Kind::kTransition && cell.next != state) {
        edges[{state, cell.next}].push_back(event);
      }
    }
  }
  return edges;
}

std::vector<Event> stays(State state) {
  std::vector<Event> events;
  for (Event event : all<Event>()) {
    const Cell& cell = fsm::step(state, event);
    if (cell.kind == Kind::kTransition && cell.next == state) events.push_back(event);
  }
  return events;
}

std::string edge_text(const Edge& edge) {
  return std::string(to_string(edge.first)) + " -> " + to_string(edge.second);
}

}  // namespace shift::fsm_gen

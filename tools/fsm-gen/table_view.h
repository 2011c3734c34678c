// How the renderers walk the failure state machine's table.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fsm/fsm.h"

namespace shift::fsm_gen {

template <typename Enum>
std::vector<Enum> all() {
  std::vector<Enum> values;
  for (size_t i = 0; i < static_cast<size_t>(Enum::kCount); i++) {
    values.push_back(static_cast<Enum>(i));
  }
  return values;
}

using Edge = std::pair<fsm::State, fsm::State>;

// Events that lead from one state into another one, in the table's order.
std::map<Edge, std::vector<fsm::Event>> edges();

// Events that a state answers with actions, and stays in.
std::vector<fsm::Event> stays(fsm::State state);

std::string edge_text(const Edge& edge);  // "active -> fencing", for complaints

}  // namespace shift::fsm_gen

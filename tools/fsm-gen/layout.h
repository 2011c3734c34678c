// Where the diagram of the state machine has its boxes and lines. The places are chosen by hand;
// what is written on the lines comes from the table.
#pragma once

#include <string>
#include <vector>

#include "table_view.h"

namespace shift::fsm_gen {

enum class Side { kLeft, kRight };

struct Box {
  fsm::State state;
  int x, y, width, height;
  // Nearly every state leads to "failed" and to "closed". Lines to these two boxes would cover the
  // picture: a short arrow on this side of the box names the state instead.
  Side failed_side = Side::kLeft, closed_side = Side::kLeft;
  const char* role = "";  // which end can be in the state, when only one can
};

struct Point {
  int x, y;
};

struct Route {
  fsm::State from, to;
  std::vector<Point> points;
  Point label;  // baseline of its first line
  Side grows;   // the side of `label` on which the text stands
};

struct Layout {
  int width, height;
  std::vector<Box> boxes;
  std::vector<Route> routes;
};

const Layout& layout();

// Transitions that are drawn as a short arrow at the box they come from.
bool is_stub(const Edge& edge);

const Box* box_of(const Layout& layout, fsm::State state);

// What the table has and the layout has not, or the other way round: one line each.
std::vector<std::string> layout_problems(const Layout& layout);

}  // namespace shift::fsm_gen

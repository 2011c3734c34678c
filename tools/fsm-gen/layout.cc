#include "layout.h"

#include <algorithm>
#include <set>

namespace shift::fsm_gen {

using S = fsm::State;

namespace {
constexpr Side kLeft = Side::kLeft, kRight = Side::kRight;
constexpr int kWide = 180;
}  // namespace

const Layout& layout() {
  static const Layout kLayout{
      1044,
      1200,
      {
          {S::kUnbound, 432, 20, kWide, 100, kLeft, kRight, ""},
          {S::kActive, 432, 170, kWide, 130, kLeft, kRight, ""},
          {S::kDraining, 182, 360, kWide, 96, kLeft, kLeft, "leader"},
          {S::kHeld, 682, 360, kWide, 96, kRight, kRight, "follower"},
          {S::kFencing, 182, 520, kWide, 140, kLeft, kLeft, ""},
          {S::kFencingTargeted, 682, 520, kWide, 140, kRight, kRight, "follower"},
          {S::kSeeking, 182, 720, kWide, 110, kLeft, kLeft, ""},
          {S::kExchanging, 182, 890, kWide, 120, kLeft, kLeft, "leader"},
          {S::kResuming, 682, 770, kWide, 170, kRight, kRight, ""},
          {S::kFailed, 182, 1060, kWide, 122, kLeft, kLeft, ""},
          {S::kClosed, 682, 1060, kWide, 122, kLeft, kLeft, ""},
      },
      {
          {S::kUnbound, S::kActive, {{525, 120}, {525, 170}}, {533, 150}, kRight},
          {S::kActive, S::kUnbound, {{490, 170}, {490, 120}}, {480, 143}, kLeft},
          {S::kActive, S::kDraining, {{432, 232}, {255, 232}, {255, 360}}, {424, 226}, kLeft},
          {S::kDraining, S::kActive, {{300, 360}, {300, 275}, {432, 275}}, {416, 255}, kLeft},
          {S::kDraining, S::kUnbound, {{205, 360}, {205, 102}, {432, 102}}, {416, 96}, kLeft},
          {S::kActive, S::kHeld, {{612, 232}, {800, 232}, {800, 360}}, {620, 226}, kRight},
          {S::kHeld, S::kActive, {{755, 360}, {755, 275}, {612, 275}}, {628, 255}, kRight},
          {S::kHeld, S::kUnbound, {{845, 360}, {845, 102}, {612, 102}}, {628, 96}, kRight},
          {S::kActive, S::kFencing, {{497, 300}, {497, 545}, {362, 545}}, {489, 335}, kLeft},
          {S::kActive,
           S::kFencingTargeted,
           {{575, 300}, {575, 545}, {682, 545}},
           {583, 335},
           kRight},
          {S::kDraining, S::kFencing, {{200, 456}, {200, 520}}, {208, 476}, kRight},
          {S::kHeld,
           S::kFencing,
           {{720, 456}, {720, 492}, {345, 492}, {345, 520}},
           {708, 472},
           kLeft},
          {S::kHeld, S::kFencingTargeted, {{780, 456}, {780, 520}}, {788, 492}, kRight},
          {S::kFencing, S::kFencingTargeted, {{362, 590}, {682, 590}}, {372, 570}, kRight},
          {S::kFencingTargeted, S::kFencing, {{682, 625}, {362, 625}}, {672, 605}, kLeft},
          {S::kFencing, S::kSeeking, {{272, 660}, {272, 720}}, {280, 694}, kRight},
          {S::kFencingTargeted, S::kResuming, {{735, 660}, {735, 770}}, {743, 700}, kRight},
          {S::kResuming, S::kFencingTargeted, {{835, 770}, {835, 660}}, {843, 730}, kRight},
          {S::kSeeking, S::kExchanging, {{272, 830}, {272, 890}}, {280, 864}, kRight},
          {S::kSeeking, S::kResuming, {{362, 790}, {682, 790}}, {395, 770}, kRight},
          {S::kExchanging,
           S::kFencing,
           {{362, 905}, {387, 905}, {387, 652}, {362, 652}},
           {395, 684},
           kRight},
          {S::kResuming,
           S::kFencing,
           {{682, 850}, {518, 850}, {518, 640}, {362, 640}},
           {672, 816},
           kLeft},
          {S::kResuming, S::kActive, {{682, 886}, {540, 886}, {540, 300}}, {672, 880}, kLeft},
          {S::kExchanging, S::kResuming, {{362, 922}, {682, 922}}, {395, 916}, kRight},
          {S::kFailed, S::kClosed, {{362, 1112}, {682, 1112}}, {485, 1106}, kRight},
      }};
  return kLayout;
}

bool is_stub(const Edge& edge) {
  return edge.second == S::kFailed || (edge.second == S::kClosed && edge.first != S::kFailed);
}

const Box* box_of(const Layout& layout, fsm::State state) {
  const auto found = std::ranges::find(layout.boxes, state, &Box::state);
  return found == layout.boxes.end() ? nullptr : &*found;
}

std::vector<std::string> layout_problems(const Layout& layout) {
  std::vector<std::string> problems;
  for (S state : all<S>()) {
    const auto count = std::ranges::count(layout.boxes, state, &Box::state);
    if (count != 1) {
      problems.push_back(std::string(to_string(state)) + " has " + std::to_string(count) +
                         " boxes instead of one");
    }
  }
  std::set<Edge> drawn;
  const auto table = edges();
  for (const Route& route : layout.routes) {
    const Edge edge{route.from, route.to};
    if (!drawn.insert(edge).second) problems.push_back(edge_text(edge) + " is drawn twice");
    if (!table.contains(edge)) problems.push_back(edge_text(edge) + " is not in the table");
    if (is_stub(edge)) problems.push_back(edge_text(edge) + " is drawn beside its short arrow");
  }
  for (const auto& [edge, events] : table) {
    if (!is_stub(edge) && !drawn.contains(edge))
      problems.push_back(edge_text(edge) + " is not drawn");
  }
  return problems;
}

}  // namespace shift::fsm_gen

// The diagram shows the whole table: a state without a box and a transition without a line are
// noticed.
#include "../layout.h"

#include "../render.h"

namespace shift::fsm_gen {
namespace {

TEST(LayoutTest, ShowsTheWholeTable) {
  EXPECT_EQ(layout_problems(layout()), std::vector<std::string>{});
}

TEST(LayoutTest, AStateWithoutABoxIsNoticed) {
  for (size_t i = 0; i < layout().boxes.size(); i++) {
    Layout lacking = layout();
    lacking.boxes.erase(lacking.boxes.begin() + static_cast<long>(i));
    const auto problems = layout_problems(lacking);
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_EQ(problems[0],
              to_string(layout().boxes[i].state) + std::string(" has 0 boxes instead of one"));
  }
}

TEST(LayoutTest, ATransitionWithoutALineIsNoticed) {
  for (size_t i = 0; i < layout().routes.size(); i++) {
    Layout lacking = layout();
    lacking.routes.erase(lacking.routes.begin() + static_cast<long>(i));
    const Route& route = layout().routes[i];
    EXPECT_EQ(layout_problems(lacking),
              std::vector<std::string>{edge_text({route.from, route.to}) + " is not drawn"});
  }
}

TEST(LayoutTest, ALineThatTheTableDoesNotHaveIsNoticed) {
  Layout wrong = layout();
  wrong.routes[0].to = fsm::State::kSeeking;
  const auto problems = layout_problems(wrong);
  EXPECT_EQ(problems[0], "unbound -> seeking is not in the table");
  wrong = layout();
  wrong.routes.push_back(wrong.routes[0]);
  EXPECT_EQ(layout_problems(wrong), std::vector<std::string>{"unbound -> active is drawn twice"});
}

// What is drawn as a line has its events beside it; the others are at the short arrows.
TEST(LayoutTest, EachEventOfATransitionIsWritten) {
  std::map<std::string, size_t> wanted, found;
  for (const auto& [edge, events] : edges()) {
    for (fsm::Event event : events) wanted[to_string(event)]++;
  }
  for (fsm::State state : all<fsm::State>()) {
    for (fsm::Event event : stays(state)) wanted[to_string(event)]++;
  }
  const std::string picture = render_svg();
  for (const auto& [event, count] : wanted) {
    const std::string text = ">" + event + "</text>";
    for (size_t at = 0; (at = picture.find(text, at)) != std::string::npos; at++) found[event]++;
  }
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace shift::fsm_gen

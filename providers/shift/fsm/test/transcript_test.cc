// Plays scripts of events and compares the table's answers with the golden files testdata/*.txt.
// SHIFT_GOLDEN_UPDATE=1 writes the files anew; then read every changed line.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "fsm/test/table.h"

namespace shift::fsm {
namespace {

template <typename T>
T by_name(const std::vector<T>& all, const std::string& name) {
  for (T value : all) {
    if (to_string(value) == name) return value;
  }
  ADD_FAILURE() << "there is no \"" << name << "\"";
  return all.front();
}

std::string answer(State& state, Event event) {
  const Cell& cell = step(state, event);
  std::string line = "  ";
  if (cell.kind == Kind::kIgnore) return line + "ignored: " + cell.reason + "\n";
  if (cell.kind == Kind::kImpossible) return line + "impossible: " + cell.reason + "\n";
  line += to_string(cell.next);
  for (Action action : actions_of(cell)) line += std::string(" ") + to_string(action);
  state = cell.next;
  return line + "\n";
}

// A line "= state" sets the state, a line with an event feeds it, and indented lines are the
// table's answers.
std::string play(const std::string& script) {
  std::istringstream lines(script);
  std::string out, line;
  State state = State::kActive;
  while (std::getline(lines, line)) {
    if (line.starts_with("  ")) continue;
    out += line + "\n";
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("= ")) {
      state = by_name(all_states(), line.substr(2));
    } else {
      out += answer(state, by_name(all_events(), line));
    }
  }
  return out;
}

TEST(Transcript, EveryScriptIsAnsweredAsWritten) {
  const bool update = std::getenv("SHIFT_GOLDEN_UPDATE") != nullptr;
  int scripts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SHIFT_FSM_TESTDATA)) {
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::string played = play(text);
    scripts++;
    if (update) {
      std::ofstream(entry.path()) << played;
    } else {
      EXPECT_EQ(played, text) << entry.path();
    }
  }
  EXPECT_GE(scripts, 6);
}

}  // namespace
}  // namespace shift::fsm

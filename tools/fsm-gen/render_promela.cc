// The table as Promela, for model/. One line per cell, marked with its state and event, so that the
// model's planted bugs can name the cell they break.
#include <string>

#include "fsm/fsm.h"
#include "render.h"

namespace shift::fsm_gen {
namespace {

using fsm::Action;
using fsm::Cell;
using fsm::Event;
using fsm::Kind;
using fsm::State;

// Names as Promela spells identifiers.
template <typename Enum>
std::string identifier(char prefix, Enum value) {
  std::string name = std::string(1, prefix) + "_" + to_string(value);
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

template <typename Enum>
std::string constants(char prefix, const char* count) {
  std::string out;
  const auto end = static_cast<size_t>(Enum::kCount);
  for (size_t i = 0; i < end; i++) {
    out += "#define " + identifier(prefix, static_cast<Enum>(i)) + " " + std::to_string(i) + "\n";
  }
  return out + "#define " + count + " " + std::to_string(end) + "\n\n";
}

// One inline per length: "go2(n, a0, a1)" fills the cell's scratch variables.
std::string setters() {
  std::string out =
      "inline ignored() { t_kind = K_ignore }\n"
      "inline impossible() { t_kind = K_impossible }\n";
  for (size_t count = 0; count <= fsm::kMaxActions; count++) {
    std::string arguments, body;
    for (size_t i = 0; i < count; i++) {
      const std::string number = std::to_string(i);
      arguments += ", a" + number;
      body += "; t_act[" + number + "] = a" + number;
    }
    if (count < fsm::kMaxActions) body += "; t_act[" + std::to_string(count) + "] = A_none";
    out += "inline go" + std::to_string(count) + "(to" + arguments +
           ") { t_kind = K_transition; t_next = to" + body + " }\n";
  }
  return out + "\n";
}

std::string cell_text(const Cell& cell) {
  if (cell.kind == Kind::kIgnore) return "ignored()";
  if (cell.kind != Kind::kTransition) return "impossible()";
  size_t count = 0;
  std::string arguments = identifier('S', cell.next);
  for (Action action : cell.actions) {
    if (action == Action::kNone) continue;
    arguments += ", " + identifier('A', action);
    count++;
  }
  return "go" + std::to_string(count) + "(" + arguments + ")";
}

}  // namespace

std::string render_promela() {
  std::string out =
      "/* The failure state machine's table (providers/shift/fsm/fsm.cc), printed by\n"
      "   fsm-gen --promela. Do not edit; a test fails when it is out of date. */\n\n" +
      constants<State>('S', "STATES") + constants<Event>('E', "EVENTS") +
      constants<Action>('A', "ACTIONS") + "#define E_none EVENTS\n#define ACTIONS_MAX " +
      std::to_string(fsm::kMaxActions) +
      "\n\n#define K_transition 1\n#define K_ignore 2\n#define K_impossible 3\n\n"
      "/* The cell that was looked up last. Not part of the state: written before it is read. */\n"
      "hidden byte t_kind;\nhidden byte t_next;\nhidden byte t_act[ACTIONS_MAX];\n\n" +
      setters() + "inline table_step(s, e) {\n  if\n";
  for (size_t s = 0; s < static_cast<size_t>(State::kCount); s++) {
    const auto state = static_cast<State>(s);
    out += "  :: s == " + identifier('S', state) + " ->\n    if\n";
    for (size_t e = 0; e < static_cast<size_t>(Event::kCount); e++) {
      const auto event = static_cast<Event>(e);
      out += "    :: e == " + identifier('E', event) + " -> " + cell_text(fsm::step(state, event)) +
             " /* " + to_string(state) + " + " + to_string(event) + " */\n";
    }
    out += "    fi\n";
  }
  return out + "  fi\n}\n";
}

}  // namespace shift::fsm_gen

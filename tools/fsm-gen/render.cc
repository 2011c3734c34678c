#include "render.h"

#include <map>
#include <utility>
#include <vector>

#include "fsm/fsm.h"

namespace shift::fsm_gen {
namespace {

using fsm::Action;
using fsm::Cell;
using fsm::Event;
using fsm::Kind;
using fsm::State;

template <typename Enum>
std::vector<Enum> all() {
  std::vector<Enum> values;
  for (size_t i = 0; i < static_cast<size_t>(Enum::kCount); i++) {
    values.push_back(static_cast<Enum>(i));
  }
  return values;
}

std::string joined(const Cell& cell, const char* quote, const char* separator) {
  std::string text;
  for (Action action : cell.actions) {
    if (action == Action::kNone) continue;
    if (!text.empty()) text += separator;
    text += quote + std::string(to_string(action)) + quote;
  }
  return text;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// Events that lead from one state into another one, in the table's order.
std::map<std::pair<State, State>, std::vector<Event>> edges() {
  std::map<std::pair<State, State>, std::vector<Event>> edges;
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

std::string events_text(const std::vector<Event>& events, const char* separator) {
  std::string text;
  for (Event event : events) {
    if (!text.empty()) text += separator;
    text += to_string(event);
  }
  return text;
}

// "event (reason); ..." of all cells of one kind.
std::string reasons(State state, Kind kind) {
  std::map<std::string, std::vector<Event>> by_reason;
  std::vector<std::string> order;
  for (Event event : all<Event>()) {
    const Cell& cell = fsm::step(state, event);
    if (cell.kind != kind) continue;
    auto& events = by_reason[cell.reason];
    if (events.empty()) order.push_back(cell.reason);
    events.push_back(event);
  }
  std::string text;
  for (const std::string& reason : order) {
    text += "- " + events_text(by_reason[reason], ", ") + ": " + reason + "\n";
  }
  return text;
}

// Mermaid takes no '-' in names of states.
std::string identifier(State state) {
  std::string name = to_string(state);
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

}  // namespace

std::string render_markdown() {
  std::string out;
  for (State state : all<State>()) {
    out += "### " + std::string(to_string(state)) + "\n\n";
    out += "| event | next state | actions, in order |\n| --- | --- | --- |\n";
    for (Event event : all<Event>()) {
      const Cell& cell = fsm::step(state, event);
      if (cell.kind != Kind::kTransition) continue;
      const std::string next = cell.next == state ? "stays" : to_string(cell.next);
      out += "| " + std::string(to_string(event)) + " | " + next + " | " + joined(cell, "", ", ") +
             " |\n";
    }
    const std::string ignored = reasons(state, Kind::kIgnore);
    const std::string impossible = reasons(state, Kind::kImpossible);
    if (!ignored.empty()) out += "\nIgnored:\n" + ignored;
    if (!impossible.empty()) out += "\nImpossible, a bug of ours if it happens:\n" + impossible;
    out += "\n";
  }
  return out;
}

std::string render_mermaid() {
  std::string out = "```mermaid\nstateDiagram-v2\n";
  for (State state : all<State>()) {
    out += "  state \"" + std::string(to_string(state)) + "\" as " + identifier(state) + "\n";
  }
  out += "  [*] --> active\n";
  for (const auto& [ends, events] : edges()) {
    out += "  " + identifier(ends.first) + " --> " + identifier(ends.second) + ": " +
           events_text(events, ", ") + "\n";
  }
  return out + "```\n";
}

std::string render_dot() {
  std::string out = "digraph fsm {\n  rankdir=TB;\n  node [shape=box, style=rounded];\n";
  for (State state : all<State>()) out += "  " + quoted(to_string(state)) + ";\n";
  for (const auto& [ends, events] : edges()) {
    out += "  " + quoted(to_string(ends.first)) + " -> " + quoted(to_string(ends.second)) +
           " [label=\"" + events_text(events, "\\n") + "\"];\n";
  }
  return out + "}\n";
}

std::string render_json() {
  auto names = [](const auto& values) {
    std::string text;
    for (auto value : values) text += (text.empty() ? "" : ", ") + quoted(to_string(value));
    return "[" + text + "]";
  };
  static constexpr const char* kKinds[] = {"empty", "transition", "ignore", "impossible"};
  std::string out = "{\n  \"states\": " + names(all<State>()) +
                    ",\n  \"events\": " + names(all<Event>()) + ",\n  \"cells\": [";
  const char* separator = "\n    ";
  for (State state : all<State>()) {
    for (Event event : all<Event>()) {
      const Cell& cell = fsm::step(state, event);
      out += separator;
      out += "{\"state\": " + quoted(to_string(state)) +
             ", \"event\": " + quoted(to_string(event)) +
             ", \"kind\": " + quoted(kKinds[static_cast<size_t>(cell.kind)]) +
             ", \"next\": " + quoted(to_string(cell.next)) + ", \"actions\": [" +
             joined(cell, "\"", ", ") + "], \"reason\": " + quoted(cell.reason) + "}";
      separator = ",\n    ";
    }
  }
  return out + "\n  ]\n}\n";
}

std::string render(std::string_view form) {
  if (form == "markdown") return render_markdown();
  if (form == "mermaid") return render_mermaid();
  if (form == "dot") return render_dot();
  if (form == "json") return render_json();
  if (form == "promela") return render_promela();
  return {};
}

}  // namespace shift::fsm_gen

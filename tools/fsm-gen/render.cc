#include "render.h"

#include <algorithm>
#include <map>
#include <vector>

#include "layout.h"
#include "table_view.h"

namespace shift::fsm_gen {
namespace {

using fsm::Action;
using fsm::Cell;
using fsm::Event;
using fsm::Kind;
using fsm::State;

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

std::string events_text(const std::vector<Event>& events, const char* separator) {
  std::string text;
  for (Event event : events) {
    if (!text.empty()) text += separator;
    text += to_string(event);
  }
  return text;
}

// Breaks a list item into lines that a reader of the source can take in.
std::string wrapped(const std::string& item) {
  constexpr size_t kColumns = 112;
  std::string text, line;
  for (size_t at = 0; at < item.size();) {
    const size_t end = std::min(item.find(' ', at), item.size());
    if (!line.empty() && line.size() + 1 + end - at > kColumns) {
      text += line + "\n";
      line = " ";
    }
    if (!line.empty()) line += ' ';
    line.append(item, at, end - at);
    at = end + 1;
  }
  return text + line + "\n";
}

// The reasons of all cells of one kind, each after its events.
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
    text += wrapped("- " + events_text(by_reason[reason], ", ") + ": " + reason);
  }
  return text;
}

// What a page begins with. A new state without words does not compile.
const char* meaning(State state) {
  switch (state) {
    case State::kUnbound:
      return "There is no peer that speaks for the other QP: the application has the stock "
             "behaviour.";
    case State::kActive:
      return "Traffic is on one path, and faults are masked. A QP begins here, at RTR, while its "
             "peer is "
             "still being\nlooked for: a fault that comes first is held back until the peer is "
             "found or "
             "given up.";
    case State::kDraining:
      return "Leader, on the way back: sends are parked, and what is under way completes.";
    case State::kHeld:
      return "Follower, on the way back: the leader has asked it to park its sends and to let "
             "complete "
             "what is under way.";
    case State::kFencing:
      return "Posting has stopped, and the path that the end is committed to is being drained.";
    case State::kFencingTargeted:
      return "Follower: it fences as in *fencing*, and the leader has named the target already.";
    case State::kSeeking:
      return "The end is fenced and committed to nothing. The leader looks for a ready path, the "
             "follower "
             "waits for the\nleader's Progress.";
    case State::kExchanging:
      return "Leader: it is committed and has sent its Progress; it waits for the follower's.";
    case State::kResuming:
      return "Both ends are fenced and committed, and the last keys are on their way.";
    case State::kFailed:
      return "The application has its error.";
    case State::kClosed:
      return "The application gave the QP up: it destroyed, reset or broke it.";
    case State::kCount:
      break;
  }
  return "";
}

constexpr char kIntroduction[] =
    R"(<!-- Printed by fsm-gen from providers/shift/fsm/fsm.cc. Do not edit; a test fails when it is out of date. -->
# The state machine

![All states and transitions](state-machine.svg)

One table (`providers/shift/fsm/fsm.cc`) says what each event does in each state of a group. It holds no
verbs, clock or lock ([decision 1](decisions/0001-pure-state-machine.md)). [How a QP changes its
path](protocol.md) tells what the steps are for; `providers/shift/fsm/fsm.h` says what each event and
action means.

In the diagram a label lists the events that take a transition. Short arrows to *failed* and *closed* stand
for lines to the two boxes at the bottom. "Stays at" lists the events that a state answers with actions
without being left. Events that a state ignores are not drawn: its page below says why it ignores them.
)";

// The state's page: what every event does, and why the others do nothing.
std::string state_page(State state) {
  std::string out = "## " + std::string(to_string(state)) + "\n\n" + meaning(state) + "\n\n";
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
  if (!impossible.empty()) out += "\nImpossible, a bug of the layer if it happens:\n" + impossible;
  return out;
}

}  // namespace

std::string render_markdown() {
  std::string out = kIntroduction;
  for (State state : all<State>()) out += "\n" + state_page(state);
  return out;
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
  if (form == "svg") return render_svg();
  if (form == "dot") return render_dot();
  if (form == "json") return render_json();
  if (form == "promela") return render_promela();
  return {};
}

}  // namespace shift::fsm_gen

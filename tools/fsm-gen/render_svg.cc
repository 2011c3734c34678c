// The diagram: boxes and lines from the layout, what is written on them from the table.
#include <algorithm>
#include <cstring>

#include "layout.h"
#include "render.h"

namespace shift::fsm_gen {
namespace {

using fsm::Event;
using fsm::State;

// Glyphs of equal width, which the picture states (textLength), so that no font makes them overlap.
constexpr int kFont = 12, kLine = 14;
constexpr double kGlyph = 7.2;
constexpr int kPillWidth = 56, kPillHeight = 18, kStubLength = 120;

constexpr char kStyle[] =
    "<style>text{font:12px 'DejaVu Sans Mono',monospace;fill:#1a202c}.n{font-weight:bold}"
    ".r{fill:#4a5568;font-style:italic}.w{fill:#fff}line,polyline{fill:none;stroke:#4a5568;"
    "stroke-width:1.3}rect{stroke:#4a5568;stroke-width:1.3}</style>\n"
    "<defs><marker id=\"to\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" markerWidth=\"8\" "
    "markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\" "
    "fill=\"#4a5568\"/></marker></defs>\n";

std::string attribute(const char* name, int value) {
  return std::string(" ") + name + "=\"" + std::to_string(value) + "\"";
}

std::string text_line(int x, int y, Side grows, const std::string& text, const char* css = "") {
  const int length = static_cast<int>(static_cast<double>(text.size()) * kGlyph);
  const int start = grows == Side::kRight ? x : x - length;
  return "<text" + attribute("x", start) + attribute("y", y) + attribute("textLength", length) +
         (*css ? std::string(" class=\"") + css + "\"" : "") + ">" + text + "</text>\n";
}

std::string text_centred(int x, int y, const std::string& text, const char* css) {
  const int length = static_cast<int>(static_cast<double>(text.size()) * kGlyph);
  return text_line(x - length / 2, y, Side::kRight, text, css);
}

std::string event_lines(int x, int y, Side grows, const std::vector<Event>& events) {
  std::string out;
  for (Event event : events) {
    out += text_line(x, y, grows, to_string(event));
    y += kLine;
  }
  return out;
}

const char* fill_of(State state) {
  if (state == State::kFailed) return "#c53030";
  if (state == State::kClosed) return "#4a5568";
  return state == State::kActive ? "#c6f6d5" : "#edf2f7";
}

// The name, and below it the events that are answered without leaving the state.
std::string box_drawn(const Box& box) {
  const bool dark = box.state == State::kFailed || box.state == State::kClosed;
  std::string out = "<rect" + attribute("x", box.x) + attribute("y", box.y) +
                    attribute("width", box.width) + attribute("height", box.height) +
                    " rx=\"6\" fill=\"" + fill_of(box.state) + "\"/>\n";
  const int middle = box.x + box.width / 2;
  out += text_centred(middle, box.y + 18, to_string(box.state), dark ? "n w" : "n");
  int y = box.y + 18;
  if (*box.role) out += text_centred(middle, y += kLine, box.role, "r");
  const auto events = stays(box.state);
  if (events.empty()) return out;
  out += text_line(box.x + 10, y += kLine + 2, Side::kRight, "stays at", dark ? "r w" : "r");
  for (Event event : events) {
    out += text_line(box.x + 20, y += kLine, Side::kRight, to_string(event), dark ? "w" : "");
  }
  return out;
}

// An arrow from the box to a small one that names the state; *y is where its text begins.
std::string stub_drawn(const Box& box, State to, Side side, const std::vector<Event>& events,
                       int* y) {
  const int sign = side == Side::kLeft ? -1 : 1;
  const int edge = side == Side::kLeft ? box.x : box.x + box.width;
  const int line = *y + kLine * static_cast<int>(events.size()) + 4;
  const int tip = edge + sign * kStubLength;
  const int pill = side == Side::kLeft ? tip - kPillWidth : tip;
  std::string out = event_lines(edge + sign * 6, *y + kFont, side, events);
  out += "<line" + attribute("x1", edge) + attribute("y1", line) + attribute("x2", tip) +
         attribute("y2", line) + " marker-end=\"url(#to)\"/>\n";
  out += "<rect" + attribute("x", pill) + attribute("y", line - kPillHeight / 2) +
         attribute("width", kPillWidth) + attribute("height", kPillHeight) + " rx=\"9\" fill=\"" +
         fill_of(to) + "\"/>\n";
  out += text_centred(pill + kPillWidth / 2, line + 4, to_string(to), "w");
  *y = line + 6;
  return out;
}

std::string route_drawn(const Route& route, const std::vector<Event>& events) {
  std::string points;
  for (const Point& point : route.points) {
    points += (points.empty() ? "" : " ") + std::to_string(point.x) + "," + std::to_string(point.y);
  }
  return "<polyline points=\"" + points + "\" marker-end=\"url(#to)\"/>\n" +
         event_lines(route.label.x, route.label.y, route.grows, events);
}

std::string stubs_drawn(const Box& box, const std::map<Edge, std::vector<Event>>& table) {
  std::string out;
  int failed_y = box.y + 4, closed_y = failed_y;
  if (const auto found = table.find({box.state, State::kFailed}); found != table.end()) {
    out += stub_drawn(box, State::kFailed, box.failed_side, found->second, &failed_y);
  }
  const auto found = table.find({box.state, State::kClosed});
  if (found == table.end() || !is_stub(found->first)) return out;
  int* y = box.closed_side == box.failed_side ? &failed_y : &closed_y;
  return out + stub_drawn(box, State::kClosed, box.closed_side, found->second, y);
}

// A QP begins in "active", at RTR.
std::string start_drawn(const Box& active) {
  const int x = active.x + active.width - 20, y = active.y - 28;
  return "<circle" + attribute("cx", x) + attribute("cy", y) +
         " r=\"5\" fill=\"#1a202c\"/>\n<line" + attribute("x1", x) + attribute("y1", y) +
         attribute("x2", x) + attribute("y2", active.y) + " marker-end=\"url(#to)\"/>\n" +
         text_line(x + 12, y + 4, Side::kRight, "RTR", "r");
}

}  // namespace

std::string render_svg() {
  const Layout& plan = layout();
  const std::string width = std::to_string(plan.width), height = std::to_string(plan.height);
  const auto table = edges();
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + width + " " +
                    height + "\">\n<!-- Printed by fsm-gen from " +
                    "providers/shift/fsm/fsm.cc. Do not edit. -->\n" + kStyle + "<rect width=\"" +
                    width + "\" height=\"" + height + "\" fill=\"#fff\" style=\"stroke:none\"/>\n";
  for (const Route& route : plan.routes)
    out += route_drawn(route, table.at({route.from, route.to}));
  for (const Box& box : plan.boxes) out += box_drawn(box) + stubs_drawn(box, table);
  return out + start_drawn(*box_of(plan, State::kActive)) + "</svg>\n";
}

}  // namespace shift::fsm_gen

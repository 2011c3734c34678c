// The failure state machine's table in the forms that people and other programs read.
#pragma once

#include <string>
#include <string_view>

namespace shift::fsm_gen {

std::string render_markdown();  // docs/state-machine.md: per state what every event does, and why
std::string render_svg();       // docs/state-machine.svg: the diagram, by the places in layout.cc
std::string render_dot();       // the diagram for Graphviz, which finds places by itself
std::string render_json();      // for other tools
std::string render_promela();   // for the model checker: constants and one inline, table_step()

// By name ("markdown", "svg", "dot", "json", "promela"); empty when there is no such form.
std::string render(std::string_view form);

}  // namespace shift::fsm_gen

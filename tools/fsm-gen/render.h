// The failure state machine's table in the forms that people and other programs read.
#pragma once

#include <string>
#include <string_view>

namespace shift::fsm_gen {

std::string render_markdown();  // per state: what every event does, and why the others do nothing
std::string render_mermaid();   // state diagram, as hosting sites draw it inside Markdown
std::string render_dot();       // the same for Graphviz
std::string render_json();      // for other tools
std::string render_promela();   // for the model checker: constants and one inline, table_step()

// By name ("markdown", "mermaid", "dot", "json", "promela"); empty when there is no such form.
std::string render(std::string_view form);

}  // namespace shift::fsm_gen

// shiftctl metrics: counts and states of all processes in the text format of Prometheus. Labels
// come from fixed sets and from the names of NICs: no process, QP or text of a process gets into
// one.
#pragma once

#include <string>

#include "host.h"

namespace shift::ctl {

std::string metrics_text(const Host& host);

}  // namespace shift::ctl

// shiftctl explain: what holds for a QP, a process or a NIC, in sentences, with what is missing and
// what helps.
#pragma once

#include <string>

#include "host.h"

namespace shift::ctl {

// Empty if the host has nothing of that name.
std::string explain_text(const Host& host, const std::string& target);

}  // namespace shift::ctl

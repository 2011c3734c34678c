// shiftctl move: one QP leaves its NIC, or need not keep away from any.
#pragma once

#include <chrono>
#include <string>

#include "host.h"

namespace shift::ctl {

// `qp` is "0x1f" or "4711:0x1f".
int move_run(const Place& place, const std::string& qp, bool is_home,
             std::chrono::milliseconds timeout);

}  // namespace shift::ctl

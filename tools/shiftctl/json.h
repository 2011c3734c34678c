// What programs get: the same facts as people, in a form that stays. "version" grows when the
// meaning of what was there before changes; new members may come at any time.
#pragma once

#include <string>
#include <vector>

#include "events.h"
#include "host.h"
#include "problems.h"
#include "settings.h"

namespace shift::ctl {

std::string status_json(const Host& host, bool is_one_line);
std::string event_json(const Event& event);  // one line
std::string health_json(const std::vector<Problem>& problems, int exit_status);
std::string settings_json(const std::vector<Setting>& settings);

}  // namespace shift::ctl

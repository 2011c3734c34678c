// The counts of a user's processes that have ended, which the state files of these processes do not
// hold any more. May be called from any thread and any process of the user.
#pragma once

#include <sys/types.h>

#include <string>

#include "state/layout.h"

namespace shift::state {

void counters_add(Counters& to, const Counters& from);

// Removes the state file `path` and adds its counts to the totals. False if that cannot be done
// now: then the file is still there, and nothing was added.
bool totals_add(const std::string& base, uid_t uid, const Counters& counters,
                const std::string& path) noexcept;

}  // namespace shift::state

// The orders that name drained NICs (state/directory.h): one name in each line.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>

#include "host.h"

namespace shift::ctl {

// Whether this may be the name of an RDMA device.
bool is_device_name(std::string_view name);

// The NICs that one order names; `problem` says why it cannot be believed.
std::set<std::string> drained_file_read(int directory, const char* name,
                                        const std::set<uid_t>& owners, std::string& problem);

// Adds the NIC to the caller's own order, or takes it out: root's order is for all processes, and
// that of a user for the user's own. `was_there` says whether the order named it before. Returns an
// empty text, or why nothing was changed.
std::string drained_file_change(const Place& place, const std::string& nic, bool is_drained,
                                bool& was_there);

}  // namespace shift::ctl

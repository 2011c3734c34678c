// Logs which device groups were made of the device list, and which configured names are missing in
// it. Programs ask for the list again and again, but a process logs each line once. Two threads
// must not call these functions at the same time.
#pragma once

#include <infiniband/verbs.h>

#include <span>
#include <string>
#include <vector>

namespace shift::ops {

using Names = std::vector<std::string>;

// Warns of each name in SHIFT_PAIRS (`groups`) that no device has: the user who wrote it expects a
// protection that does not exist. A host without devices has nothing to protect, so nothing is
// logged there.
void log_missing_names(const std::vector<Names>& groups,
                       std::span<ibv_device* const> devices) noexcept;

// Logs that the first of `members` is backed by the others, or by none.
void log_group(std::span<ibv_device* const> devices, const std::vector<int>& members) noexcept;

}  // namespace shift::ops

// What the log tells of the device list: the groups made of it, and configured names that it lacks.
// The list is asked for again and again; each thing is told once in a process. Not by two threads
// at a time.
#pragma once

#include <infiniband/verbs.h>

#include <span>
#include <string>
#include <vector>

namespace shift::ops {

using Names = std::vector<std::string>;

// A name of SHIFT_PAIRS (`groups`) that no device has: whoever wrote it believes in a protection
// that there is not. A host without devices has nothing to protect, and nothing is told.
void log_missing_names(const std::vector<Names>& groups,
                       std::span<ibv_device* const> devices) noexcept;

// The first of `members` is backed by the others, or by none.
void log_group(std::span<ibv_device* const> devices, const std::vector<int>& members) noexcept;

}  // namespace shift::ops

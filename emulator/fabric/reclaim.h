// Frees the address blocks of fabrics that were left behind without `cxemu clean`, for example by
// test runs that make a fabric each.
#pragma once

#include <string>

namespace cxemu {

// Removes the shared file of every fabric of this user that was not used for `idle_seconds` and has
// no live process; returns how many were removed. Their claims are then stale (net.h).
int idle_fabrics_remove(const std::string& claims_dir, long idle_seconds);

}  // namespace cxemu

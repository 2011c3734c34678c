// Frees the address blocks of fabrics that were left behind without `cxemu clean`, as test runs do
// that make a fabric each.
#pragma once

#include <string>

namespace cxemu {

// Removes the shared file of every fabric of this user that nobody has used for `idle_seconds` and
// that has no live process; returns how many. Its claim is stale from then on (net.h).
int idle_fabrics_remove(const std::string& claims_dir, long idle_seconds);

}  // namespace cxemu

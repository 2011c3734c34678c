// The dynamic linker's cache, which says where programs find a library.
#pragma once

#include <map>
#include <string>

#include "layout.h"

namespace shift::system {

// Makes the cache anew. Returns an empty string, or why that did not work.
std::string linker_renew(const Layout& layout);

// Fills `found` with the path of each front's library that programs of this architecture find;
// there is no entry for a library that they do not find. Returns an empty string, or why the cache
// cannot be read.
std::string linker_read(const Layout& layout, std::map<std::string, std::string>& found);

}  // namespace shift::system

// The files of a port in sysfs (under ports/1) whose content changes: state, GIDs, counters. The
// tree on disk contains them only so that they are found; their content is made when they are
// opened.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"

namespace cxemu {

// Paths relative to ports/1, in no particular order.
std::vector<std::string> port_files();
// The content of the file now, with its line end; returns false if there is no such file. The file
// of an empty GID entry exists, but *text is empty (the kernel fails to read it with EINVAL).
bool port_file_text(const FabricNic&, std::string_view path, uint64_t now_ns, std::string* text);

// Counters of a folder, "counters/" or "hw_counters/", by name.
std::map<std::string, uint64_t> port_counters(const FabricNic&, std::string_view folder);
// The GID as sysfs shows it.
std::string gid_text(const FabricNic&, int index);
// Groups of four hex digits, as in sysfs.
std::string hex_groups(const uint8_t* bytes, int count);

}  // namespace cxemu

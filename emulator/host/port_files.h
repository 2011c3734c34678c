// The files of a port in sysfs (under ports/1) whose content changes: state, GIDs, counters. The
// tree on disk has them only to be found; what they say is made when they are opened.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/fabric.h"

namespace cxemu {

// Their paths relative to ports/1, in no order.
std::vector<std::string> port_files();
// What the file says now, with its line end; false when there is no such file. A file of an empty
// GID entry exists, but says nothing (the kernel fails to read it with EINVAL): *text is empty.
bool port_file_text(const FabricNic&, std::string_view path, uint64_t now_ns, std::string* text);

// Counters of a folder, "counters/" or "hw_counters/", by name.
std::map<std::string, uint64_t> port_counters(const FabricNic&, std::string_view folder);
// As sysfs shows it.
std::string gid_text(const FabricNic&, int index);
// Groups of four hex digits, as sysfs shows GIDs and GUIDs.
std::string hex_groups(const uint8_t* bytes, int count);

}  // namespace cxemu

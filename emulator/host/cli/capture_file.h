// Makes a pcapng file from a capture's spool.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/fabric.h"

namespace cxemu {

// Writes all packets of `spool` to `out` in the order of their times, each at the interface
// HOST/DEVICE and with its direction. Returns their number; throws std::runtime_error.
uint64_t capture_file_write(const Fabric& fabric, const std::string& spool, const std::string& out);

}  // namespace cxemu

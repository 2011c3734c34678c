// The network header that a UD receive finds before its data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/fabric.h"

namespace cxemu {

inline constexpr size_t kGrhSize = 40;

// Writes the header of a packet with `transport_size` bytes of transport headers and data. `kind`:
// which entries of the GID tables the packet used (gid.h). The 20 bytes of RoCE v2 over IPv4 are at
// the end; the bytes before them are zero here and undefined on ConnectX.
void grh_write(const FabricNic& from, const FabricNic& to, int kind, size_t transport_size,
               uint8_t out[kGrhSize]);

}  // namespace cxemu

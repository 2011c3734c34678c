// The network header that a UD receive finds before its data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/fabric.h"

namespace cxemu {

inline constexpr size_t kGrhSize = 40;

// Writes what arrived before `payload_size` bytes of transport headers and data. `kind`: of the
// entries of the GID tables that the packet went between (gid.h). RoCE v2 over IPv4 has its 20
// bytes at the end; what is before them is zero here and undefined on ConnectX.
void grh_write(const FabricNic& from, const FabricNic& to, int kind, size_t transport_size,
               uint8_t out[kGrhSize]);

}  // namespace cxemu

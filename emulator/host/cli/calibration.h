// What `cxemu calibrate` has measured, kept for this user's fabrics.
#pragma once

#include <cstdint>

namespace cxemu {

// How many bytes per second one NIC can carry; 0: never measured.
uint64_t calibration_read();
// Throws std::runtime_error.
void calibration_write(uint64_t bytes_per_second);

}  // namespace cxemu

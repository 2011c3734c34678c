// The fuzz targets. Each interprets the bytes in its own way, and aborts when something happens
// that must not.
#pragma once

#include <cstdint>
#include <span>

#include "fuzz/input.h"

namespace cxemu::fuzz {

// Packets that arrive at queue pairs of all services, and work requests of these queue pairs.
void packets(std::span<const uint8_t> input);
// Commands sent by write() or ioctl() to a device file with a NIC behind it.
void commands(std::span<const uint8_t> input);
// Send rings, receive rings and shared receive queues with arbitrary content.
void wqes(std::span<const uint8_t> input);

using fuzzing::Input;
using fuzzing::require;

}  // namespace cxemu::fuzz

// The rates of NICs, as the fabric file keeps them. nic/bucket.h tells how capacity is booked.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace cxemu {

struct FabricFile;
struct FabricNic;

// Classes of service; the greater number goes first.
inline constexpr int kShapeClasses = 8;
inline int shape_class(uint8_t service_level) {
  return service_level & (kShapeClasses - 1);
}

// One line of capacity, of one NIC in one direction.
struct ShapeBucket {
  std::atomic<uint64_t> rate;       // bytes per second; 0: no limit
  std::atomic<uint64_t> booked_ns;  // until when its capacity is given away, on CLOCK_MONOTONIC
  // Until when somebody wants capacity for this class, so that lower ones must not book. Whoever
  // waits renews it, and whoever dies is forgotten soon.
  std::array<std::atomic<uint64_t>, kShapeClasses> wanted_until_ns;
};

// The rates of one NIC. `tx` is for what it sends. What it receives passes two buckets of the same
// rate: senders book `entry` before they send, so that no more is under way than the credit, and
// `rx` when it is handed over to the NIC.
struct NicShape {
  std::atomic<uint64_t> tx_rate, rx_rate;  // as set, bytes per second; 0: no limit
  std::atomic<uint32_t> slow_ppm;          // the part of the rates that is left; 0: all
  ShapeBucket tx, entry, rx;
};

// Sets the rates, 0: no limit.
void shape_set(FabricFile&, FabricNic&, uint64_t tx_rate, uint64_t rx_rate);
// Leaves so many millionths of the rates; 0: all. A direction without a rate then has this part of
// FabricFile::machine_rate. Returns false if it has neither.
bool shape_slow(FabricFile&, FabricNic&, uint32_t ppm);
bool shape_may_slow(const FabricFile&, const FabricNic&);

// As "200Mbit", "1.5Gbit", "64Kbit", "off"; at least 8 Kbit.
bool rate_parse(const std::string& text, uint64_t* bytes_per_second);
std::string rate_text(uint64_t bytes_per_second);

}  // namespace cxemu

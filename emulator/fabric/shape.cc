// Sets the rates of NICs.
#include "fabric/shape.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "fabric/fabric.h"

namespace cxemu {
namespace {

constexpr uint64_t kRateMin = 1000;
constexpr double kRateMax = 1e12 / 8;

struct Unit {
  const char* name;
  double bits;
};
constexpr Unit kUnits[] = {{"Kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}};

uint64_t rate_left(uint64_t rate, uint64_t machine_rate, uint32_t slow_ppm) {
  if (slow_ppm == 0) return rate;
  const uint64_t whole = rate != 0 ? rate : machine_rate;
  return whole == 0 ? 0 : std::max(kRateMin, whole / 1'000'000 * slow_ppm);
}

// Bookings at the old rate are void: with a low one they may be far in the future.
void bucket_set(ShapeBucket& bucket, uint64_t rate) {
  if (bucket.rate.exchange(rate) != rate) bucket.booked_ns.store(0);
}

void shape_update(FabricFile& fabric, FabricNic& nic) {
  NicShape& shape = nic.shape;
  const uint64_t machine_rate = fabric.machine_rate.load();
  const uint32_t slow_ppm = shape.slow_ppm.load();
  const uint64_t tx = rate_left(shape.tx_rate.load(), machine_rate, slow_ppm);
  const uint64_t rx = rate_left(shape.rx_rate.load(), machine_rate, slow_ppm);
  bucket_set(shape.tx, tx);
  bucket_set(shape.entry, rx);
  bucket_set(shape.rx, rx);
  if ((tx | rx) != 0) {
    nic.faults.fetch_or(kShaped);
    fabric.shaping.store(1);
  } else {
    nic.faults.fetch_and(~kShaped);
  }
}

}  // namespace

void shape_set(FabricFile& fabric, FabricNic& nic, uint64_t tx_rate, uint64_t rx_rate) {
  nic.shape.tx_rate.store(tx_rate);
  nic.shape.rx_rate.store(rx_rate);
  shape_update(fabric, nic);
}

bool shape_may_slow(const FabricFile& fabric, const FabricNic& nic) {
  return fabric.machine_rate.load() != 0 ||
         (nic.shape.tx_rate.load() != 0 && nic.shape.rx_rate.load() != 0);
}

bool shape_slow(FabricFile& fabric, FabricNic& nic, uint32_t ppm) {
  if (ppm != 0 && !shape_may_slow(fabric, nic)) return false;
  nic.shape.slow_ppm.store(ppm);
  shape_update(fabric, nic);
  return true;
}

bool rate_parse(const std::string& text, uint64_t* bytes_per_second) {
  *bytes_per_second = 0;
  if (text == "off") return true;
  const size_t unit_at = text.find_first_not_of("0123456789.");
  if (unit_at == 0 || unit_at == std::string::npos) return false;
  char* end = nullptr;
  const double value = strtod(text.c_str(), &end);
  if (end != text.c_str() + unit_at) return false;
  for (const Unit& unit : kUnits) {
    if (text.substr(unit_at) != unit.name) continue;
    const double bytes = value * unit.bits / 8;
    if (bytes < kRateMin || bytes > kRateMax) return false;
    *bytes_per_second = static_cast<uint64_t>(std::llround(bytes));
    return true;
  }
  return false;
}

std::string rate_text(uint64_t bytes_per_second) {
  if (bytes_per_second == 0) return "off";
  const double bits = static_cast<double>(bytes_per_second) * 8;
  const Unit* best = &kUnits[0];
  for (const Unit& unit : kUnits)
    if (bits >= unit.bits) best = &unit;
  char text[48];
  snprintf(text, sizeof text, "%.6g%s", bits / best->bits, best->name);
  return text;
}

}  // namespace cxemu

// Booking.
#include "nic/bucket.h"

#include <algorithm>

#include "nic/planted.h"

namespace cxemu {

namespace {

uint64_t cost_ns(uint64_t rate, uint64_t bytes) {
  return (bytes * 1'000'000'000 + rate - 1) / rate;
}

}  // namespace

uint64_t bucket_book(ShapeBucket& bucket, uint64_t rate, uint64_t bytes, uint64_t now_ns) {
  const uint64_t credit = CXEMU_PLANT(bucket_deep) ? 16 * kShapeCredit : kShapeCredit;
  const uint64_t oldest_ns = now_ns - std::min(now_ns, cost_ns(rate, credit));
  uint64_t booked_ns = bucket.booked_ns.load(std::memory_order_relaxed);
  uint64_t start_ns;
  do {
    start_ns = std::max(booked_ns, oldest_ns);
  } while (!bucket.booked_ns.compare_exchange_weak(booked_ns, start_ns + cost_ns(rate, bytes),
                                                   std::memory_order_relaxed));
  return start_ns;
}

void bucket_return(ShapeBucket& bucket, uint64_t rate, uint64_t bytes) {
  const uint64_t given_ns = bytes * 1'000'000'000 / rate;
  uint64_t booked_ns = bucket.booked_ns.load(std::memory_order_relaxed);
  while (!bucket.booked_ns.compare_exchange_weak(
      booked_ns, booked_ns - std::min(booked_ns, given_ns), std::memory_order_relaxed)) {
  }
}

uint64_t bucket_yield_until_ns(const ShapeBucket& bucket, int service_class, uint64_t now_ns) {
  uint64_t until_ns = 0;
  for (int higher = service_class + 1; higher < kShapeClasses; ++higher) {
    const uint64_t wanted_ns =
        bucket.wanted_until_ns[static_cast<size_t>(higher)].load(std::memory_order_relaxed);
    if (wanted_ns > now_ns) until_ns = std::max(until_ns, wanted_ns);
  }
  return until_ns;
}

}  // namespace cxemu

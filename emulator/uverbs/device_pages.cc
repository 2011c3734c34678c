// The area behind a device file.
#include "uverbs/device_pages.h"

#include <rdma/mlx5-abi.h>
#include <sched.h>
#include <time.h>

#include <algorithm>

namespace cxemu {

// A mutex of this process is not enough, because processes share the memory.
class DeviceMemory::Lock {
 public:
  explicit Lock(std::atomic<uint32_t>* locked) : locked_(locked) {
    while (locked_->exchange(1, std::memory_order_acquire) != 0) sched_yield();
  }
  ~Lock() { locked_->store(0, std::memory_order_release); }

 private:
  std::atomic<uint32_t>* const locked_;
};

size_t DeviceMemory::allocate(size_t length, size_t alignment) {
  const size_t units = (length + kUnit - 1) / kUnit;
  const size_t step = std::max<size_t>(alignment / kUnit, 1);
  if (units == 0 || units > kUnits) return SIZE_MAX;
  const Lock lock(&locked_);
  for (size_t first = 0; first + units <= kUnits; first += step) {
    uint8_t* const begin = used_ + first;
    if (std::any_of(begin, begin + units, [](uint8_t used) { return used != 0; })) continue;
    std::fill_n(begin, units, uint8_t{1});
    return first * kUnit;
  }
  return SIZE_MAX;
}

void DeviceMemory::free(size_t offset, size_t length) {
  const Lock lock(&locked_);
  std::fill_n(used_ + offset / kUnit, (length + kUnit - 1) / kUnit, uint8_t{0});
}

void DevicePages::clock_update() const {
  const auto nanoseconds = [](clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  };
  // A reader that sees an odd sign, or a different one afterwards, reads again.
  auto* info = reinterpret_cast<mlx5_ib_clock_info*>(page(kPageClockInfo));
  const uint32_t sign = info->sign;
  __atomic_store_n(&info->sign, sign | MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_release);  // a store alone orders nothing behind it
  info->cycles = nanoseconds(CLOCK_MONOTONIC);
  info->nsec = nanoseconds(CLOCK_REALTIME);
  info->frac = 0;
  info->mult = 1;  // a cycle is a nanosecond
  info->shift = 0;
  info->mask = UINT64_MAX;
  info->overflow_period = 1'000'000'000;
  __atomic_store_n(&info->sign, sign + 2 * MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, __ATOMIC_RELEASE);
}

}  // namespace cxemu

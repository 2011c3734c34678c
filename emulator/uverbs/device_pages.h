// What mmap() of a device file reaches: register pages, the clock, and the device's memory. The
// library finds each by its offset. Each opening of the file has its own area; children of fork()
// share it with their parent.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cxemu {

// The library counts in the pages of the machine, which on aarch64 often have 64 KiB.
inline size_t device_page_size() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}
// Page numbers. The driver defines the first ones: command << 8 | index.
inline constexpr uint32_t kPageClockInfo = 7u << 8 | 1;
inline constexpr uint32_t kPageDeviceMemory = 8u << 8;
inline constexpr uint32_t kPageRegisters = 16u << 8;  // pages that the library asks for
inline constexpr uint32_t kRegisterPagesMax = 4096;
inline constexpr uint32_t kPageAllocations = 33u << 8;
inline size_t device_pages_size() {
  return (kPageAllocations + 1) * device_page_size();
}

inline constexpr size_t kDeviceMemorySize = 128 << 10;

// Which parts of the device's memory are allocated, in units of 64 bytes.
class DeviceMemory {
 public:
  // Returns an offset in the device's memory; SIZE_MAX: there is no room.
  size_t allocate(size_t length, size_t alignment);
  void free(size_t offset, size_t length);

 private:
  class Lock;
  static constexpr size_t kUnit = 64;
  static constexpr size_t kUnits = kDeviceMemorySize / kUnit;

  std::atomic<uint32_t> locked_;
  uint8_t used_[kUnits];
};
static_assert(sizeof(DeviceMemory) <= 4096);  // no machine has smaller pages

// The area; its creator maps it: device_pages_size() bytes, zero at first.
class DevicePages {
 public:
  explicit DevicePages(uint8_t* base) : base_(base) {}

  uint8_t* page(uint32_t number) const { return base_ + number * device_page_size(); }
  uint8_t* memory() const { return page(kPageDeviceMemory); }
  DeviceMemory& allocations() const {
    return *reinterpret_cast<DeviceMemory*>(page(kPageAllocations));
  }
  // Updates how completion time stamps (CLOCK_MONOTONIC, in nanoseconds) convert to the time of
  // day.
  void clock_update() const;

 private:
  uint8_t* base_;
};

}  // namespace cxemu

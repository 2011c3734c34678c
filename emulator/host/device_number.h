// The number that a NIC's device file has, in sysfs and for fstat().
#pragma once

#include <sys/sysmacros.h>
#include <sys/types.h>

namespace cxemu {

inline dev_t device_number(int index) {
  // What the kernel gives to the first devices.
  constexpr unsigned kMajor = 231, kFirstMinor = 192;
  return makedev(kMajor, kFirstMinor + static_cast<unsigned>(index));
}

}  // namespace cxemu

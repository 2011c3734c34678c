// The device number of a NIC's device file, in sysfs and for fstat().
#pragma once

#include <sys/sysmacros.h>
#include <sys/types.h>

namespace cxemu {

inline dev_t device_number(int index) {
  // The numbers that the kernel gives to the first devices.
  constexpr unsigned kMajor = 231, kFirstMinor = 192;
  return makedev(kMajor, kFirstMinor + static_cast<unsigned>(index));
}

}  // namespace cxemu

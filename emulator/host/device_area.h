// The file behind an open device: anonymous memory that an application can map at any offset, as it
// maps the registers and the memory of a real device.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>

namespace cxemu {

class DeviceArea {
 public:
  // Returns nullptr and sets errno on failure. The application owns *fd. `flags` as for open().
  static std::unique_ptr<DeviceArea> create(int flags, int* fd);
  ~DeviceArea();

  uint8_t* base() const { return base_; }
  // Whether `fd` still is our file: an application may have closed it in ways that we cannot see.
  bool is_behind(int fd) const;

 private:
  DeviceArea(uint8_t* base, const struct stat& file)
      : base_(base), device_(file.st_dev), inode_(file.st_ino) {}

  uint8_t* const base_;
  const dev_t device_;
  const ino_t inode_;
};

}  // namespace cxemu

// Which paths of the application lead into the emulated host, and where they really go.
#pragma once

#include <limits.h>

#include <string_view>

namespace cxemu {

class Guest;

// The PCI domain of all emulated NICs.
inline constexpr char kPciDomain[] = "ce00";

// N of "/dev/infiniband/uverbsN" if the host has that device, else -1.
int device_path_index(const Guest&, std::string_view path);

// The path to use instead of `path`. The object stores a changed path.
class TranslatedPath {
 public:
  explicit TranslatedPath(const char* path);
  const char* get() const { return path_; }
  // The device's number when the path is a device file, else -1; get() then returns the file
  // underneath.
  int device() const { return device_; }

 private:
  const char* path_;
  int device_ = -1;
  char changed_[PATH_MAX];
};

}  // namespace cxemu

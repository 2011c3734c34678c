// Which paths of the application lead into the emulated host, and where they really go.
#pragma once

#include <limits.h>

#include <string_view>

namespace cxemu {

class Guest;

// N of "/dev/infiniband/uverbsN" when the host has that device, else -1.
int device_path_index(const Guest&, std::string_view path);

// The path to use in place of `path`. Storage for a changed one lives in the object.
class TranslatedPath {
 public:
  explicit TranslatedPath(const char* path);
  const char* get() const { return path_; }
  // Set when the path is a device file; get() then leads to the file underneath.
  int device() const { return device_; }

 private:
  const char* path_;
  int device_ = -1;
  char changed_[PATH_MAX];
};

}  // namespace cxemu

// Live sysfs files.
#include "host/live_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "fabric/flap.h"
#include "host/guest.h"
#include "host/port_files.h"

namespace cxemu {
namespace {

constexpr std::string_view kDevice = "/mlx5_";
constexpr std::string_view kPort = "/ports/1/";

// Splits the path into the NIC's number and the path under its port; returns false if it is another
// path.
bool port_path_split(std::string_view path, int* nic, std::string_view* rest) {
  const size_t port = path.find(kPort);
  if (port == std::string_view::npos || port < kDevice.size() + 1) return false;
  const size_t device = port - kDevice.size() - 1;
  if (path.substr(device, kDevice.size()) != kDevice) return false;
  *nic = path[port - 1] - '0';
  *rest = path.substr(port + kPort.size());
  return true;
}

// Makes a file that no other process can see or change.
int text_file_make(const std::string& text, int flags) {
  const int fd = memfd_create("cxemu", (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0);
  if (fd < 0) return -1;
  // Calls the kernel directly, because this runs inside one of our own hooks.
  if (syscall(SYS_write, fd, text.data(), text.size()) != static_cast<long>(text.size())) {
    syscall(SYS_close, fd);
    errno = EIO;
    return -1;
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

}  // namespace

int live_file_open(const Guest& guest, const char* path, int flags) {
  const std::string& root = guest.sysfs_root();
  if ((flags & O_ACCMODE) != O_RDONLY || strncmp(path, root.c_str(), root.size()) != 0)
    return kNotLive;
  int index;
  std::string_view rest;
  if (!port_path_split(path + root.size(), &index, &rest)) return kNotLive;
  const FabricNic* nic = guest.nic(index);
  std::string text;
  if (nic == nullptr || !port_file_text(*nic, rest, monotonic_ns(), &text)) return kNotLive;
  if (text.empty()) {
    errno = EINVAL;
    return -1;
  }
  return text_file_make(text, flags);
}

}  // namespace cxemu

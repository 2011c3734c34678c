// The file behind an open device.
#include "host/device_area.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "host/real.h"
#include "uverbs/device_pages.h"

namespace cxemu {
namespace {

Real<int(int)> g_close("close");
Real<int(int, struct stat*)> g_fstat("fstat");

}  // namespace

std::unique_ptr<DeviceArea> DeviceArea::create(int flags, int* fd) {
  *fd = memfd_create("uverbs", (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0);
  if (*fd < 0) return nullptr;
  void* base = MAP_FAILED;
  struct stat file;
  if (ftruncate(*fd, device_pages_size()) == 0 && g_fstat(*fd, &file) == 0)
    base = mmap(nullptr, device_pages_size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                *fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    g_close(*fd);
    errno = error;
    return nullptr;
  }
  return std::unique_ptr<DeviceArea>(new DeviceArea(static_cast<uint8_t*>(base), file));
}

DeviceArea::~DeviceArea() {
  munmap(base_, device_pages_size());
}

bool DeviceArea::is_behind(int fd) const {
  struct stat file;
  return g_fstat(fd, &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
}

}  // namespace cxemu

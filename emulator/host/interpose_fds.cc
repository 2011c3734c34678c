// Replaces the C library's functions that copy descriptors or describe them.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdarg>

#include "host/device_number.h"
#include "host/guest.h"
#include "host/interpose.h"
#include "host/real.h"

namespace {

using cxemu::FdKind;
using cxemu::Guest;
using cxemu::Real;

Real<int(int)> g_dup("dup");
Real<int(int, int)> g_dup2("dup2");
Real<int(int, int, int)> g_dup3("dup3");
Real<int(int, int, ...)> g_fcntl("fcntl");
Real<int(int, int, ...)> g_fcntl64("fcntl64", "GLIBC_2.28");
Real<int(int, struct stat*)> g_fstat("fstat");
Real<int(int, struct stat64*)> g_fstat64("fstat64");
Real<int(int, int, struct stat*)> g_fxstat("__fxstat", "GLIBC_2.2.5");
Real<int(int, int, struct stat64*)> g_fxstat64("__fxstat64", "GLIBC_2.2.5");

bool is_device(int fd) {
  Guest* guest = Guest::get();
  if (guest == nullptr) return false;
  const FdKind kind = guest->fds().get(fd);
  return kind == FdKind::kDevice || kind == FdKind::kLost;
}

int duplicated(int fd, int copy) {
  if (copy >= 0 && copy != fd && is_device(fd)) Guest::get()->device_duplicated(fd, copy);
  return copy;
}

// dup2() closes the file that had the number before.
void replacing(int fd, int copy) {
  Guest* guest = Guest::get();
  if (guest == nullptr || fd == copy || guest->fds().get(copy) == FdKind::kOther) return;
  if (g_fcntl(fd, F_GETFD) >= 0) guest->fd_closing(copy);
}

bool duplicates(int command) {
  return command == F_DUPFD || command == F_DUPFD_CLOEXEC;
}

// Programs check that a device file is a character device with the number that sysfs shows.
template <typename Stat>
int described(int result, int fd, Stat* out) {
  if (result != 0 || !is_device(fd)) return result;
  const auto device = Guest::get()->device_find(fd);
  if (device == nullptr) return result;
  out->st_mode = S_IFCHR | 0666;
  out->st_rdev = cxemu::device_number(device->index);
  out->st_size = 0;
  return result;
}

}  // namespace

CXEMU_EXPORT(int, dup, (int fd)) {
  return duplicated(fd, g_dup(fd));
}
CXEMU_EXPORT(int, dup2, (int fd, int copy)) {
  replacing(fd, copy);
  return duplicated(fd, g_dup2(fd, copy));
}
CXEMU_EXPORT(int, dup3, (int fd, int copy, int flags)) {
  replacing(fd, copy);
  return duplicated(fd, g_dup3(fd, copy, flags));
}
// The third argument is an int, a pointer, or missing. Reading it always is harmless with this
// machine's calling convention, and the C library does so itself.
CXEMU_EXPORT(int, fcntl, (int fd, int command, ...)) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const int result = g_fcntl(fd, command, argument);
  return duplicates(command) ? duplicated(fd, result) : result;
}
CXEMU_EXPORT(int, fcntl64, (int fd, int command, ...)) {
  va_list arguments;
  va_start(arguments, command);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const int result = g_fcntl64(fd, command, argument);
  return duplicates(command) ? duplicated(fd, result) : result;
}

CXEMU_EXPORT(int, fstat, (int fd, struct stat* out)) {
  return described(g_fstat(fd, out), fd, out);
}
CXEMU_EXPORT(int, fstat64, (int fd, struct stat64* out)) {
  return described(g_fstat64(fd, out), fd, out);
}
// Programs built before glibc 2.33 call this.
CXEMU_EXPORT(int, __fxstat, (int version, int fd, struct stat* out)) {
  return described(g_fxstat(version, fd, out), fd, out);
}
CXEMU_EXPORT(int, __fxstat64, (int version, int fd, struct stat64* out)) {
  return described(g_fxstat64(version, fd, out), fd, out);
}

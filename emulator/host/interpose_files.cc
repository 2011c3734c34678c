// Replaces the C library's functions on paths, so that programs find the device files and the sysfs
// of the emulated host.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "host/guest.h"
#include "host/interpose.h"
#include "host/live_files.h"
#include "host/paths.h"
#include "host/real.h"

namespace {

using cxemu::Guest;
using cxemu::Real;
using cxemu::TranslatedPath;

using OpenFunction = int(const char*, int, ...);
using OpenAtFunction = int(int, const char*, int, ...);

Real<OpenFunction> g_open("open");
Real<OpenAtFunction> g_openat("openat");

// Opens paths that are not files on disk: a device, or a live file of sysfs.
int special_open(const TranslatedPath& path, int flags) {
  const Guest* guest = Guest::get();
  if (guest == nullptr || path.get() == nullptr) return cxemu::kNotLive;
  if (path.device() >= 0) return Guest::get()->device_open(path.device(), flags);
  return cxemu::live_file_open(*guest, path.get(), flags);
}

int open_any(const char* path, int flags, mode_t mode) {
  const TranslatedPath translated(path);
  if (const int fd = special_open(translated, flags); fd != cxemu::kNotLive) return fd;
  return g_open(translated.get(), flags, mode);
}

int openat_any(int dir, const char* path, int flags, mode_t mode) {
  const TranslatedPath translated(path);
  if (const int fd = special_open(translated, flags); fd != cxemu::kNotLive) return fd;
  return g_openat(dir, translated.get(), flags, mode);
}

// The mode is present only when the flags say so. Reading it always is harmless with this machine's
// calling convention, and the C library does so itself.
mode_t mode_read(va_list arguments) {
  return va_arg(arguments, mode_t);
}

}  // namespace

CXEMU_EXPORT(int, open, (const char* path, int flags, ...)) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_read(arguments);
  va_end(arguments);
  return open_any(path, flags, mode);
}
CXEMU_EXPORT(int, open64, (const char* path, int flags, ...)) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_read(arguments);
  va_end(arguments);
  return open_any(path, flags | O_LARGEFILE, mode);
}
CXEMU_EXPORT(int, openat, (int dir, const char* path, int flags, ...)) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_read(arguments);
  va_end(arguments);
  return openat_any(dir, path, flags, mode);
}
CXEMU_EXPORT(int, openat64, (int dir, const char* path, int flags, ...)) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_read(arguments);
  va_end(arguments);
  return openat_any(dir, path, flags | O_LARGEFILE, mode);
}
// Fortified programs call this when they pass no mode.
CXEMU_EXPORT(int, __open_2, (const char* path, int flags)) {
  return open_any(path, flags, 0);
}
CXEMU_EXPORT(int, __open64_2, (const char* path, int flags)) {
  return open_any(path, flags | O_LARGEFILE, 0);
}
CXEMU_EXPORT(int, __openat_2, (int dir, const char* path, int flags)) {
  return openat_any(dir, path, flags, 0);
}
CXEMU_EXPORT(int, __openat64_2, (int dir, const char* path, int flags)) {
  return openat_any(dir, path, flags | O_LARGEFILE, 0);
}

// Functions of one path: they all call the original with the translated path.
#define CXEMU_FORWARD(result, symbol, parameters, ...)                    \
  static Real<result parameters> g_real_##symbol(#symbol, "GLIBC_2.2.5"); \
  CXEMU_EXPORT(result, symbol, parameters) {                              \
    const TranslatedPath translated(path);                                \
    return g_real_##symbol(__VA_ARGS__);                                  \
  }

CXEMU_FORWARD(int, stat, (const char* path, struct stat* out), translated.get(), out)
CXEMU_FORWARD(int, stat64, (const char* path, struct stat64* out), translated.get(), out)
CXEMU_FORWARD(int, lstat, (const char* path, struct stat* out), translated.get(), out)
CXEMU_FORWARD(int, lstat64, (const char* path, struct stat64* out), translated.get(), out)
CXEMU_FORWARD(int, fstatat, (int dir, const char* path, struct stat* out, int flags), dir,
              translated.get(), out, flags)
CXEMU_FORWARD(int, fstatat64, (int dir, const char* path, struct stat64* out, int flags), dir,
              translated.get(), out, flags)
CXEMU_FORWARD(int, statx, (int dir, const char* path, int flags, unsigned mask, struct statx* out),
              dir, translated.get(), flags, mask, out)
// Programs built before glibc 2.33 call these.
CXEMU_FORWARD(int, __xstat, (int version, const char* path, struct stat* out), version,
              translated.get(), out)
CXEMU_FORWARD(int, __xstat64, (int version, const char* path, struct stat64* out), version,
              translated.get(), out)
CXEMU_FORWARD(int, __lxstat, (int version, const char* path, struct stat* out), version,
              translated.get(), out)
CXEMU_FORWARD(int, __lxstat64, (int version, const char* path, struct stat64* out), version,
              translated.get(), out)
CXEMU_FORWARD(int, access, (const char* path, int mode), translated.get(), mode)
CXEMU_FORWARD(int, faccessat, (int dir, const char* path, int mode, int flags), dir,
              translated.get(), mode, flags)
CXEMU_FORWARD(ssize_t, readlink, (const char* path, char* out, size_t size), translated.get(), out,
              size)
CXEMU_FORWARD(ssize_t, __readlink_chk, (const char* path, char* out, size_t size, size_t room),
              translated.get(), out, size, room)
CXEMU_FORWARD(ssize_t, readlinkat, (int dir, const char* path, char* out, size_t size), dir,
              translated.get(), out, size)
CXEMU_FORWARD(char*, __realpath_chk, (const char* path, char* out, size_t room), translated.get(),
              out, room)
CXEMU_FORWARD(char*, canonicalize_file_name, (const char* path), translated.get())

static Real<FILE*(const char*, const char*)> g_real_fopen("fopen"), g_real_fopen64("fopen64");

static FILE* fopen_any(Real<FILE*(const char*, const char*)>& real, const char* path,
                       const char* mode) {
  const TranslatedPath translated(path);
  // 'r' without '+' means read-only; devices are not opened in this way.
  if (translated.device() < 0 && mode[0] == 'r' && strchr(mode, '+') == nullptr) {
    const int flags = strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0;
    const int fd = special_open(translated, flags);
    if (fd != cxemu::kNotLive) return fd < 0 ? nullptr : fdopen(fd, mode);
  }
  return real(translated.get(), mode);
}

CXEMU_EXPORT(FILE*, fopen, (const char* path, const char* mode)) {
  return fopen_any(g_real_fopen, path, mode);
}
CXEMU_EXPORT(FILE*, fopen64, (const char* path, const char* mode)) {
  return fopen_any(g_real_fopen64, path, mode);
}

CXEMU_FORWARD(int, scandir,
              (const char* path, struct dirent*** out, int (*filter)(const struct dirent*),
               int (*compare)(const struct dirent**, const struct dirent**)),
              translated.get(), out, filter, compare)
CXEMU_FORWARD(int, scandir64,
              (const char* path, struct dirent64*** out, int (*filter)(const struct dirent64*),
               int (*compare)(const struct dirent64**, const struct dirent64**)),
              translated.get(), out, filter, compare)

// The oldest version of realpath refuses a null buffer, so this asks for the version that
// allocates.
static Real<char*(const char*, char*)> g_real_realpath("realpath", "GLIBC_2.3");
CXEMU_EXPORT(char*, realpath, (const char* path, char* out)) {
  const TranslatedPath translated(path);
  return g_real_realpath(translated.get(), out);
}

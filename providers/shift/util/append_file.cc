// Opens files in folders that others may write to, too.
#include "util/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace shift::detail {
namespace {

constexpr int kHighFd = 800;

// What speaks against writing to this file, or null. Whoever may write to its folder, such as /tmp,
// may have made it beforehand: a file of that user's own, who could read the lines, or a second
// name of a file that belongs to this process's user and is none of the layer's.
const char* file_problem(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return "it is no regular file";
  if (status.st_uid != geteuid()) return "it belongs to another user";
  if (status.st_nlink > 1) return "it has a second name (a hard link)";
  return nullptr;
}

}  // namespace

int append_file_open(const char* path, const char*& problem) noexcept {
  // Whoever may write to the file's folder, such as /tmp, must not choose what is written to. Nor
  // may a FIFO hold the program up.
  constexpr int kFlags =
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK;
  const int fd = ::open(path, kFlags, 0600);
  if (fd < 0) {
    problem = errno == ELOOP ? "it is a symbolic link" : std::strerror(errno);
    return -1;
  }
  problem = file_problem(fd);
  if (problem == nullptr) return move_high(fd);
  ::close(fd);
  return -1;
}

int move_high(int fd) noexcept {
  const int high = ::fcntl(fd, F_DUPFD_CLOEXEC, kHighFd);
  if (high < 0) return fd;
  ::close(fd);
  return high;
}

}  // namespace shift::detail

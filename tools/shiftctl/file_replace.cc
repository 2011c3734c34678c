#include "file_replace.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "util/unique_fd.h"

namespace shift::ctl {

namespace {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// A name beside the file that nobody can guess, since the folder may be open to all. Its point
// keeps it from whoever looks for files by their ending, as the collector of metrics does.
std::string new_name(const std::string& name) {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random)
    random = static_cast<uint64_t>(::getpid());
  char end[24];
  snprintf(end, sizeof end, ".%016llx", static_cast<unsigned long long>(random));
  const size_t slash = name.rfind('/');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return name.substr(0, begin) + "." + name.substr(begin) + end;
}

}  // namespace

std::string file_replace(int directory, const std::string& name, std::string_view text,
                         mode_t mode) {
  const std::string made = new_name(name);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const UniqueFd fd(::openat(directory, made.c_str(), kFlags, 0600));
  if (!fd) return made + ": " + std::strerror(errno);
  // fchmod: the mode shall not depend on the umask.
  if (write_all(fd.get(), text) && ::fchmod(fd.get(), mode) == 0 && ::fsync(fd.get()) == 0 &&
      ::renameat(directory, made.c_str(), directory, name.c_str()) == 0)
    return "";
  const int error = errno;
  ::unlinkat(directory, made.c_str(), 0);
  return name + ": " + std::strerror(error);
}

}  // namespace shift::ctl

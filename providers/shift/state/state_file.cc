#include "state/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "state/directory.h"
#include "state/totals.h"

namespace shift::state {

bool StateFile::open(const std::string& base, std::string& problem) {
  const uid_t user = ::geteuid();
  if (!directory_open(base, user, true, problem)) return false;
  const auto number = static_cast<unsigned>(std::random_device{}());
  // The program waits meanwhile, so one process in eight looks what others have left.
  if (number % 8 == 0) ended_fold(base, user);
  char name[64];
  std::snprintf(name, sizeof name, "/%d-%08x", static_cast<int>(::getpid()), number);
  stem_ = user_directory(base, user) + name;
  base_ = base;
  const std::string path = stem_ + kStateEnd;
  // The descriptor is not moved to a high number: the kernel would hold this process of several
  // threads up for 10 ms to make room for it.
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  // A lock of the process, not of the descriptor: a child that was forked does not have it, and
  // whoever asks for its holder is told a process.
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  struct stat status {};
  if (!file || ::fcntl(file.get(), F_SETLK, &lock) != 0 || ::fstat(file.get(), &status) != 0) {
    problem = path + ": " + std::strerror(errno);
    return false;
  }
  device_ = status.st_dev;
  number_ = status.st_ino;
  file_ = std::move(file);
  return true;
}

// A program may have closed all descriptors that it does not know, and given the number to a file
// of its own.
bool StateFile::is_ours() const noexcept {
  struct stat status {};
  return ::fstat(file_.get(), &status) == 0 && status.st_dev == device_ && status.st_ino == number_;
}

int StateFile::write(size_t place, const void* bytes, size_t size) noexcept {
  if (!file_) return 0;
  if (!is_ours()) return EBADF;
  const size_t at = place * kPlaceSize;
  if (!write_is_allowed(at + size)) return EFBIG;
  const ssize_t n = ::pwrite(file_.get(), bytes, size, static_cast<off_t>(at));
  if (n == static_cast<ssize_t>(size)) return 0;
  return n < 0 ? errno : ENOSPC;
}

int StateFile::clear(size_t place) noexcept {
  const char free[kPlaceSize] = {};
  return write(place, free, sizeof free);
}

void StateFile::end(const Counters& counters) noexcept {
  if (!file_ || !is_ours()) return;
  const std::string path = stem_ + kStateEnd;
  // Without the totals the file stays, and a later process adds its counts.
  if (totals_add(base_, ::geteuid(), counters, path)) file_.reset();
}

}  // namespace shift::state

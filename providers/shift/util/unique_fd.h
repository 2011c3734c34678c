// The owner of one descriptor. The descriptor is closed in fork children (util/fork.h).
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "util/fork.h"

namespace shift {

class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd), generation_(fork_generation()) {
    if (fd_ >= 0) fork_fd_add(fd_);
  }
  UniqueFd(UniqueFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      generation_ = other.generation_;
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

  // Closes the descriptor and keeps errno. In a fork child the number may belong to the program by
  // now, so nothing is closed there.
  void reset() noexcept {
    if (fd_ < 0) return;
    const int saved = errno;
    if (generation_ == fork_generation()) {
      fork_fd_remove(fd_);
      ::close(fd_);
    }
    fd_ = -1;
    errno = saved;
  }

 private:
  int fd_ = -1;
  uint64_t generation_ = 0;
};

}  // namespace shift

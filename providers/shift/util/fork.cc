// Closes the layer's descriptors in fork children and counts forks.
#include "util/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include "util/log.h"

namespace shift {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<int> fds;
  std::atomic<uint64_t> generation{0};
};

Registry* registry() noexcept;

// The lock is held across fork, so that the child never sees a half-changed list.
void before_fork() {
  registry()->mutex.lock();
}
void after_fork_parent() {
  registry()->mutex.unlock();
}
void after_fork_child() {
  Registry* r = registry();
  for (int fd : r->fds) ::close(fd);
  r->fds.clear();
  r->generation.fetch_add(1, std::memory_order_relaxed);
  // The parent's thread has locked the mutex, so the child makes its copy anew.
  new (&r->mutex) std::mutex;
}

// The registry is never destroyed: the layer's threads may outlive the program's exit handlers.
Registry* registry() noexcept {
  alignas(Registry) static char storage[sizeof(Registry)];
  static Registry* const instance = [] {
    auto* r = new (storage) Registry;
    r->fds.reserve(64);
    return r;
  }();
  static const int registered = pthread_atfork(before_fork, after_fork_parent, after_fork_child);
  (void)registered;
  return instance;
}

}  // namespace

void fork_fd_add(int fd) noexcept {
  Registry* r = registry();
  std::lock_guard lock(r->mutex);
  try {
    r->fds.push_back(fd);
  } catch (const std::bad_alloc&) {
    SHIFT_WARN_LIMITED("out of memory: descriptor %d stays open in forked children", fd);
  }
}

void fork_fd_remove(int fd) noexcept {
  Registry* r = registry();
  std::lock_guard lock(r->mutex);
  auto it = std::find(r->fds.begin(), r->fds.end(), fd);
  if (it == r->fds.end()) return;
  *it = r->fds.back();
  r->fds.pop_back();
}

uint64_t fork_generation() noexcept {
  return registry()->generation.load(std::memory_order_relaxed);
}

}  // namespace shift

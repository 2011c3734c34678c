// The engine's lock. A plain mutex starves command handlers, because the engine thread takes it
// again right after it let go; this one counts who waits, and the engine steps aside for them.
#pragma once

#include <atomic>
#include <mutex>

namespace cxemu {

// BasicLockable and Lockable: use with std::lock_guard and std::unique_lock.
class EngineLock {
 public:
  void lock() {
    waiters_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

  // Somebody else wants the lock. Only a hint: read without the lock.
  bool contended() const { return waiters_.load(std::memory_order_relaxed) > 0; }

 private:
  std::mutex mutex_;
  std::atomic<int> waiters_{0};
};

}  // namespace cxemu

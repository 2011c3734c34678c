// The engine's lock. A plain mutex starves command handlers, because the engine thread takes it
// again right after releasing it. This lock counts its waiters, and the engine steps aside for
// them.
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

  // Whether another thread wants the lock. Only a hint: it is read without the lock.
  bool contended() const { return waiters_.load(std::memory_order_relaxed) > 0; }

 private:
  std::mutex mutex_;
  std::atomic<int> waiters_{0};
};

}  // namespace cxemu

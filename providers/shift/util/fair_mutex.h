// A mutex that other threads can get although one thread takes it again and again.
#pragma once

#include <atomic>
#include <mutex>

namespace shift {

// Programs poll a completion queue without a pause, and on the slow way each call takes the queue's
// mutex. A polling thread takes a std::mutex again before a thread that was woken for the mutex
// runs: with more threads than processors, the control thread once waited for 9 s, and a QP failed
// that much too late (C6). So the application's calls, which come again in any case, queue up after
// the threads that wait in lock(). Threads in lock_behind() do not queue up after each other,
// because a mutex that is handed from one sleeping thread to the next is slow.
class FairMutex {
 public:
  void lock() {
    if (mutex_.try_lock()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    lock_in_turn();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  // For a caller that comes again and again. While a thread waits in lock(), the caller waits for
  // its turn, too, and so does not pass the thread that has the turn. The caller can still pass a
  // thread whose wait it does not see yet, or that waits for the turn, since `turn_` is an ordinary
  // mutex.
  void lock_behind() {
    if (waiting_.load(std::memory_order_relaxed) == 0) return mutex_.lock();
    lock_in_turn();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

  // A hint that a thread waits in lock(), or has just got the mutex.
  bool has_waiters() const { return waiting_.load(std::memory_order_relaxed) != 0; }

 private:
  void lock_in_turn() {
    std::lock_guard turn(turn_);  // the thread that has it is next
    mutex_.lock();
  }

  std::mutex mutex_;
  std::mutex turn_;
  std::atomic<int> waiting_{0};
};

}  // namespace shift

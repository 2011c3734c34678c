// A mutex that a thread which takes it again and again cannot keep from the others.
#pragma once

#include <atomic>
#include <mutex>

namespace shift {

// Programs poll a completion queue without a pause, and on the slow way each call takes the queue's
// mutex. A std::mutex is taken again before a thread that was woken for it runs: with more threads
// than processors the control thread once waited for 9 s, and a QP failed that much too late (C6).
// So the application's calls, which come again in any case, queue up after the threads that wait.
// Among themselves they do not: a mutex that is handed from sleeper to sleeper is slow.
class FairMutex {
 public:
  void lock() {
    if (mutex_.try_lock()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    lock_in_turn();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  // For a caller that comes again and again. While it sees somebody wait in lock(), it waits for
  // its turn, too, and so does not pass who has the turn. A thread can still be passed before its
  // wait is seen and before it has got the turn, for that is an ordinary mutex.
  void lock_behind() {
    if (waiting_.load(std::memory_order_relaxed) == 0) return mutex_.lock();
    lock_in_turn();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

  // A hint: somebody waits in lock(), or has just got it.
  bool has_waiters() const { return waiting_.load(std::memory_order_relaxed) != 0; }

 private:
  void lock_in_turn() {
    std::lock_guard turn(turn_);  // whoever has it is next
    mutex_.lock();
  }

  std::mutex mutex_;
  std::mutex turn_;
  std::atomic<int> waiting_{0};
};

}  // namespace shift

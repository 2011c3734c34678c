// A count that one thread at a time advances, while other threads may read it. They read an older
// value or the new value, never a torn one.
#pragma once

#include <atomic>
#include <cstdint>

namespace shift {

class Tally {
 public:
  Tally(uint64_t value = 0) : value_(value) {}
  Tally& operator=(uint64_t value) {
    std::atomic_ref(value_).store(value, std::memory_order_relaxed);
    return *this;
  }
  Tally& operator+=(uint64_t by) {
#ifdef __SANITIZE_THREAD__
    return *this = value_ + by;
#else
    // This is one instruction on the hot path, while g++ makes three from an atomic load and store.
    // Every processor that rdma-core runs on writes an aligned word whole.
    value_ += by;
    return *this;
#endif
  }
  Tally& operator++() {
    return *this += 1;
  }
  // Advances the count; a thread that reads it with seen() also sees what was written before.
  void publish(uint64_t value) {
    std::atomic_ref(value_).store(value, std::memory_order_release);
  }
  uint64_t seen() const {
    return std::atomic_ref(value_).load(std::memory_order_acquire);
  }
  // Only the thread that advances the count may call it; the value may be kept in a register.
  uint64_t own() const {
    return value_;
  }
  operator uint64_t() const {
    return std::atomic_ref(value_).load(std::memory_order_relaxed);
  }

 private:
  alignas(8) mutable uint64_t value_;
};

}  // namespace shift

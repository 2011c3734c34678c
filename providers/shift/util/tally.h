// A count that one thread at a time advances and that others may read meanwhile: they see an older
// value or the new one, never a torn one.
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
    // One instruction on the hot path, of which g++ makes three for an atomic load and store.
    // Aligned words are written whole on every processor that rdma-core runs on.
    value_ += by;
    return *this;
#endif
  }
  Tally& operator++() {
    return *this += 1;
  }
  // For the thread that advances it: may be kept in a register.
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

// An atomic that can be copied, so that a struct with such members can be made anew by assignment
// while other threads may read them. Each member is stored by itself, so a reader may see the new
// value of one member and the old value of another.
#pragma once

#include <atomic>

namespace shift {

template <typename T>
class CopyableAtomic : public std::atomic<T> {
 public:
  constexpr CopyableAtomic(T value = T{}) noexcept : std::atomic<T>(value) {}
  CopyableAtomic(const CopyableAtomic& other) noexcept
      : std::atomic<T>(other.load(std::memory_order_relaxed)) {}
  CopyableAtomic& operator=(const CopyableAtomic& other) noexcept {
    this->store(other.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return *this;
  }
  using std::atomic<T>::operator=;
};

}  // namespace shift

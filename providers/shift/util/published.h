// A pointer that one thread sets once the object is complete, while other threads may follow it.
#pragma once

#include <atomic>

namespace shift {

template <typename T>
class Published {
 public:
  Published(T* object = nullptr) : object_(object) {}
  Published(const Published& other) : object_(static_cast<T*>(other)) {}
  Published& operator=(const Published& other) { return *this = static_cast<T*>(other); }
  Published& operator=(T* object) {
    object_.store(object, std::memory_order_release);
    return *this;
  }
  operator T*() const { return object_.load(std::memory_order_acquire); }
  T* operator->() const { return *this; }
  // Returns the pointer by a plain load. It is for a pointer that was set before the caller got the
  // struct that holds the pointer, and that is not set again: what made the struct visible to the
  // caller made the pointer and its object visible, too. An ordered load costs more on some
  // processors (ldar on arm64), and the hot path does without it.
  T* set_before() const { return object_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T*> object_;
};

}  // namespace shift

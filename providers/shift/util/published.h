// A pointer that one thread sets, when what it points to is whole, and that others follow
// meanwhile.
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
  // The same for a pointer that was set before the caller was given what holds this one, and is not
  // set again: whatever made that one visible made this and its object visible, too. Where an
  // ordered load costs more than a plain one (arm64's ldar), the hot path does not pay for it.
  T* set_before() const { return object_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T*> object_;
};

}  // namespace shift

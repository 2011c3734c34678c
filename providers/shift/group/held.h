// Virtual objects are held by the application and by tasks of command threads: the last holder
// deletes the object. So a call that destroys an object need not wait for tasks that still use it.
#pragma once

#include <atomic>
#include <utility>

namespace shift::group {

// A part of each object that is held.
class Holders {
 public:
  void add() { count_.fetch_add(1, std::memory_order_relaxed); }
  // True: that was the last one.
  bool drop() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

 private:
  std::atomic<int> count_{1};  // the application is the first holder
};

// Keeps an object that has a part `holders`. Null is allowed.
template <typename Object>
class Held {
 public:
  Held() = default;
  explicit Held(Object* object) : object_(object) {
    if (object_ != nullptr) object_->holders.add();
  }
  Held(const Held& other) : Held(other.object_) {}
  Held(Held&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Held& operator=(Held other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Held() {
    if (object_ != nullptr) let_go(object_);
  }
  Object* get() const { return object_; }
  Object& operator*() const { return *object_; }
  Object* operator->() const { return object_; }

  // The application's part is over.
  static void let_go(Object* object) {
    if (object->holders.drop()) delete object;
  }

 private:
  Object* object_ = nullptr;
};

template <typename Object>
void let_go(Object* object) {
  Held<Object>::let_go(object);
}

}  // namespace shift::group

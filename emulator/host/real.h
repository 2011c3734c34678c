// The C library's own functions that libcxemu.so replaces.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace cxemu {

// Resolved at first use, because constructors of other libraries may call us before ours ran. The
// object is initialised as a constant and has no destructor, so it is usable at any moment of a
// process's life.
template <typename Function>
class Real {
 public:
  explicit constexpr Real(const char* name, const char* old_version = nullptr)
      : name_(name), old_version_(old_version) {}

  // Returns nullptr if the C library has no such function.
  Function* get() {
    void* found = pointer_.load(std::memory_order_relaxed);
    if (found == nullptr) {
      found = dlsym(RTLD_NEXT, name_);
      if (found == nullptr && old_version_ != nullptr)
        found = dlvsym(RTLD_NEXT, name_, old_version_);
      pointer_.store(found, std::memory_order_relaxed);
    }
    return reinterpret_cast<Function*>(found);
  }
  template <typename... Args>
  auto operator()(Args... args) {
    return get()(args...);
  }

 private:
  const char* const name_;
  const char* const old_version_;
  std::atomic<void*> pointer_{nullptr};
};

}  // namespace cxemu

// What all fuzz targets use, those of the emulator and those of the layer in tests/fuzz: values are
// read from the input, and a broken rule aborts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <utility>

namespace fuzzing {

// Reads values from the input; after its end it reads zeros.
class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : left_(bytes) {}
  bool ended() const { return left_.empty(); }
  template <typename T>
  T take() {
    T value{};
    take(&value, sizeof value);
    return value;
  }
  // Takes all that is left.
  std::span<const uint8_t> rest() { return std::exchange(left_, {}); }
  void take(void* to, size_t size) {
    const size_t given = std::min(size, left_.size());
    if (given > 0) memcpy(to, left_.data(), given);
    if (size > given) memset(static_cast<uint8_t*>(to) + given, 0, size - given);
    left_ = left_.subspan(given);
  }
  uint8_t below(uint8_t bound) { return static_cast<uint8_t>(take<uint8_t>() % bound); }

 private:
  std::span<const uint8_t> left_;
};

inline void require(bool right, const char* what) {
  if (right) return;
  fprintf(stderr, "%s\n", what);
  abort();
}

}  // namespace fuzzing

// What can be fuzzed. Each target takes bytes that mean whatever the target makes of them, and
// aborts when something happened that must not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

namespace cxemu::fuzz {

// Packets that arrive at queue pairs of all services, and work requests of theirs.
void packets(std::span<const uint8_t> input);
// Commands written to, or asked by ioctl of, a device file with a NIC behind it.
void commands(std::span<const uint8_t> input);
// Send and receive rings and shared receive queues full of anything.
void wqes(std::span<const uint8_t> input);

// Reads values off the input; when it has ended, zeros.
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

}  // namespace cxemu::fuzz

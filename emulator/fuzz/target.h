// The fuzz targets. Each interprets the bytes in its own way, and aborts when something happens
// that must not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

namespace cxemu::fuzz {

// Packets that arrive at queue pairs of all services, and work requests of these queue pairs.
void packets(std::span<const uint8_t> input);
// Commands sent by write() or ioctl() to a device file with a NIC behind it.
void commands(std::span<const uint8_t> input);
// Send rings, receive rings and shared receive queues with arbitrary content.
void wqes(std::span<const uint8_t> input);

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

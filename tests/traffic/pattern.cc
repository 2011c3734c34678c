// Word i of a pattern mixes the key and i, so the bytes at any offset can be checked alone.
#include "pattern.h"

#include <cstring>

namespace traffic {
namespace {

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ (x >> 32);
}

uint64_t word_at(uint64_t key, uint64_t index) {
  return mix(key + index * 0x9e3779b97f4a7c15u);
}

}  // namespace

uint64_t pattern_key(uint64_t seed, Domain domain, int direction, uint32_t qp, uint64_t number) {
  uint64_t key = mix(seed + 0x632be59bd9b4e019u);
  key = mix(key ^
            (static_cast<uint64_t>(domain) << 56 | static_cast<uint64_t>(direction) << 48 | qp));
  return mix(key ^ (number * 0x9e3779b97f4a7c15u + 1));
}

std::byte pattern_byte(uint64_t key, size_t offset) {
  return static_cast<std::byte>(word_at(key, offset / 8) >> (offset % 8 * 8));
}

void pattern_fill(uint64_t key, std::span<std::byte> bytes) {
  size_t whole = bytes.size() / 8;
  for (size_t i = 0; i < whole; ++i) {
    uint64_t word = word_at(key, i);
    std::memcpy(bytes.data() + i * 8, &word, 8);
  }
  if (size_t rest = bytes.size() % 8; rest != 0) {
    uint64_t word = word_at(key, whole);
    std::memcpy(bytes.data() + whole * 8, &word, rest);
  }
}

std::optional<size_t> pattern_mismatch(uint64_t key, std::span<const std::byte> bytes,
                                       size_t offset) {
  size_t i = 0;
  for (; i < bytes.size() && (offset + i) % 8 != 0; ++i)
    if (bytes[i] != pattern_byte(key, offset + i)) return i;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if (word != word_at(key, (offset + i) / 8)) break;
  }
  for (; i < bytes.size(); ++i)
    if (bytes[i] != pattern_byte(key, offset + i)) return i;
  return std::nullopt;
}

}  // namespace traffic

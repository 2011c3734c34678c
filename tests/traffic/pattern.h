// Byte patterns. Each byte is a function of a key and its offset, so that a byte from another
// message, direction, QP or offset is found to be wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace traffic {

enum class Domain : uint8_t { kPayload, kPoison, kReceivePoison, kLocalPoison, kChoice };

uint64_t pattern_key(uint64_t seed, Domain domain, int direction, uint32_t qp, uint64_t number);

void pattern_fill(uint64_t key, std::span<std::byte> bytes);

// Compares `bytes` with the pattern from `offset` on. Returns the index of the first wrong byte.
std::optional<size_t> pattern_mismatch(uint64_t key, std::span<const std::byte> bytes,
                                       size_t offset = 0);

// Returns one byte of the pattern.
std::byte pattern_byte(uint64_t key, size_t offset);

}  // namespace traffic

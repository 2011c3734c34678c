#include "nic/held_writes.h"

#include <cstdlib>

#include "nic/transport.h"

namespace cxemu {

void HeldWrites::write(uint8_t* to, const uint8_t* from, uint32_t size, uint64_t now_ns) {
  if (hold_ns_ == 0 || size == 0) return place(to, from, size);
  held_.push_back({now_ns + hold_ns_, to, {from, from + size}});
}

void HeldWrites::release_due(uint64_t now_ns) {
  while (!held_.empty() && held_.front().due_ns <= now_ns) {
    const Held& first = held_.front();
    place(first.to, first.bytes.data(), first.bytes.size());
    held_.pop_front();
  }
}

uint64_t hold_writes_ns() {
  constexpr uint64_t kNsPerMs = 1'000'000, kMsMax = 60'000;
  const char* text = std::getenv("CXEMU_HOLD_WRITES");
  if (text == nullptr) return 0;
  char* end = nullptr;
  const unsigned long long ms = std::strtoull(text, &end, 10);
  return end == text || *end != '\0' || ms > kMsMax ? 0 : ms * kNsPerMs;
}

}  // namespace cxemu

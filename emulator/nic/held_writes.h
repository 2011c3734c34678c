// What peers have written that has not reached the memory yet. A real card's writes may be on their
// way for a while, above all those to the memory of a GPU, and a completion in host memory does not
// say that they have arrived. Only a READ that the same card answers pushes them there. This is how
// programs with GPUs (NCCL) order what they have received.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace cxemu {

// One NIC's, in one process. The engine's lock guards it.
class HeldWrites {
 public:
  // A write is held for `hold_ns` at most; 0: no write is held.
  explicit HeldWrites(uint64_t hold_ns) : hold_ns_(hold_ns) {}

  // Writes to `to`, now or later.
  void write(uint8_t* to, const uint8_t* from, uint32_t size, uint64_t now_ns);
  // Lets those arrive whose time has come by `now_ns`.
  void release_due(uint64_t now_ns);
  void release() { release_due(UINT64_MAX); }
  // When the next one arrives by itself; UINT64_MAX: none is held.
  uint64_t due_ns() const { return held_.empty() ? UINT64_MAX : held_.front().due_ns; }

 private:
  struct Held {
    uint64_t due_ns;
    uint8_t* to;
    std::vector<uint8_t> bytes;
  };
  const uint64_t hold_ns_;
  std::deque<Held> held_;  // in the order of their arrival from the network
};

// How long the NICs of this process hold what peers write, as CXEMU_HOLD_WRITES says in ms; 0 if it
// is not set.
uint64_t hold_writes_ns();

}  // namespace cxemu

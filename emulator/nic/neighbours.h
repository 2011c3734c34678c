// Finds out whether the other processes of the fabric get a processor. An engine that cannot run
// answers nothing, unlike any real NIC; a process that waits for it must not count that time
// against its retransmission timers. Where engines are many for the processors, each of them looks
// for work less often, or they would take all processors with nothing to do.
#pragma once

#include <cstdint>

#include "fabric/fabric.h"

namespace cxemu {

class Neighbours {
 public:
  // An engine that has something to watch runs every millisecond. If it does not run for less than
  // kLateNs, no peer's retries are exhausted. If it does not run for more than kExcusedNs, the
  // cause is not a busy processor (but a debugger, SIGSTOP), or nothing can help.
  static constexpr uint64_t kLateNs = 25'000'000, kExcusedNs = 2'000'000'000;

  Neighbours(FabricFile& fabric, int slot) : fabric_(fabric), slot_(slot) {}

  // Our own engine runs now. `watches`: it will run again within milliseconds, if it can.
  void stamp(uint64_t now_ns, bool watches) {
    fabric_.process[slot_].passed_ns.store(watches ? now_ns : 0, std::memory_order_relaxed);
  }
  // Whether a live process is kept from running. It checks at most once in a millisecond, and less
  // often in a crowd and while one is.
  bool any_starved(uint64_t now_ns);
  // How many times as long an engine sleeps as it would alone: how many times kUncrowded engines
  // that watch something there are for each processor, rounded down, and 1 at least. It is as new
  // as the last any_starved().
  uint64_t crowding() const { return crowding_; }

  // A processor carries twice so many engines before they look less often.
  static constexpr uint64_t kUncrowded = 8;
  // Even then an engine runs several times in kLateNs.
  static constexpr uint64_t kCrowdingMax = 8;

 private:
  bool is_starved(const FabricProcess& process, uint64_t now_ns) const;

  FabricFile& fabric_;
  const int slot_;
  uint64_t looked_ns_ = 0;
  uint64_t crowding_ = 1;
  bool starved_ = false;
};

}  // namespace cxemu

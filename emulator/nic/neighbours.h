// Do the other processes of the fabric get a processor? An engine that cannot run answers nothing,
// as no NIC would; whoever waits for it must not count that time against its retransmission timers.
#pragma once

#include <cstdint>

#include "fabric/fabric.h"

namespace cxemu {

class Neighbours {
 public:
  // An engine that has something to watch runs every millisecond. Not running for less than this
  // does not exhaust anybody's retries; not running for longer than the other is no want of a
  // processor any more (a debugger, SIGSTOP), or at least nobody's who can be helped.
  static constexpr uint64_t kLateNs = 25'000'000, kExcusedNs = 2'000'000'000;

  Neighbours(FabricFile& fabric, int slot) : fabric_(fabric), slot_(slot) {}

  // Our own engine runs now; `watches`: and will again within milliseconds, if it can.
  void stamp(uint64_t now_ns, bool watches) {
    fabric_.process[slot_].passed_ns.store(watches ? now_ns : 0, std::memory_order_relaxed);
  }
  // Some process that lives is kept from running. Looks once in a millisecond.
  bool any_starved(uint64_t now_ns);

 private:
  bool is_starved(const FabricProcess& process, uint64_t now_ns) const;

  FabricFile& fabric_;
  const int slot_;
  uint64_t looked_ns_ = 0;
  bool starved_ = false;
};

}  // namespace cxemu

// A link that goes down and up by itself. Nobody runs a timer: the schedule lies in the fabric
// file, and whoever looks at the port works out where in it the clock is.
#pragma once

#include <atomic>
#include <cstdint>

namespace cxemu {

struct FabricFile;
struct FabricNic;

// Down for down_us, then up for up_us, `times` times (0: without end), from start_ns on
// (CLOCK_MONOTONIC). Valid while kFlap is set; written before it is.
struct FlapSchedule {
  std::atomic<uint64_t> start_ns;
  std::atomic<uint32_t> down_us, up_us, times;
  // How many changes of the link were put down in the event log: whoever moves it writes them.
  std::atomic<uint64_t> edges_told;
};

uint64_t monotonic_ns();

// Changes of the link since the schedule began: odd while it is down.
uint64_t flap_edges(const FabricNic&, uint64_t now_ns);
// When the next change is due; UINT64_MAX: none.
uint64_t flap_next_ns(const FabricNic&, uint64_t now_ns);
// FabricNic::faults, with kLinkDown as the schedule has it now. What everybody must ask who wants
// to know whether the link is up.
uint32_t faults_now(const FabricNic&, uint64_t now_ns);
uint32_t faults_now(const FabricNic&);
// Puts changes that are due into the event log and the counters.
void flap_settle(FabricFile&, FabricNic&, uint64_t now_ns);

}  // namespace cxemu

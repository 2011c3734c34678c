// A link that goes down and up by itself. No timer runs: the schedule is in the fabric file, and
// each reader computes the port's state from the clock.
#pragma once

#include <atomic>
#include <cstdint>

namespace cxemu {

struct FabricFile;
struct FabricNic;

// From start_ns on (CLOCK_MONOTONIC), the link is down for down_us and then up for up_us, `times`
// times (0: without end). Valid while kFlap is set; written before kFlap is set.
struct FlapSchedule {
  std::atomic<uint64_t> start_ns;
  std::atomic<uint32_t> down_us, up_us, times;
  // How many changes of the link are in the event log. The process that raises this number writes
  // the events.
  std::atomic<uint64_t> edges_told;
};

uint64_t monotonic_ns();

// Number of link changes since the schedule began; it is odd while the link is down.
uint64_t flap_edges(const FabricNic&, uint64_t now_ns);
// When the next change is due; UINT64_MAX: never.
uint64_t flap_next_ns(const FabricNic&, uint64_t now_ns);
// FabricNic::faults, with kLinkDown as the schedule has it now. Every check whether the link is up
// must use this.
uint32_t faults_now(const FabricNic&, uint64_t now_ns);
uint32_t faults_now(const FabricNic&);
// Adds changes that are due to the event log and the counters.
void flap_settle(FabricFile&, FabricNic&, uint64_t now_ns);

}  // namespace cxemu

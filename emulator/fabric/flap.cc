// Computes where in its schedule a flapping link is.
#include "fabric/flap.h"

#include <time.h>

#include "fabric/event_log.h"
#include "fabric/fabric.h"

namespace cxemu {
namespace {

struct Schedule {
  explicit Schedule(const FlapSchedule& from)
      : start_ns(from.start_ns.load(std::memory_order_relaxed)),
        down_ns(uint64_t{from.down_us.load(std::memory_order_relaxed)} * 1000),
        period_ns(down_ns + uint64_t{from.up_us.load(std::memory_order_relaxed)} * 1000),
        times(from.times.load(std::memory_order_relaxed)) {}

  uint64_t edges(uint64_t now_ns) const {
    if (now_ns < start_ns || period_ns == 0) return 0;
    const uint64_t since = now_ns - start_ns;
    const uint64_t whole = since / period_ns;
    if (times != 0 && whole >= times) return uint64_t{times} * 2;
    return whole * 2 + (since % period_ns < down_ns ? 1 : 2);
  }
  uint64_t edge_ns(uint64_t edge) const {  // of the edge-th change, from 1
    return start_ns + (edge - 1) / 2 * period_ns + (edge % 2 == 0 ? down_ns : 0);
  }

  uint64_t start_ns, down_ns, period_ns, times;
};

}  // namespace

uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t flap_edges(const FabricNic& nic, uint64_t now_ns) {
  if ((nic.faults.load(std::memory_order_acquire) & kFlap) == 0) return 0;
  return Schedule(nic.flap).edges(now_ns);
}

uint64_t flap_next_ns(const FabricNic& nic, uint64_t now_ns) {
  if ((nic.faults.load(std::memory_order_acquire) & kFlap) == 0) return UINT64_MAX;
  const Schedule schedule(nic.flap);
  const uint64_t edges = schedule.edges(now_ns);
  if (schedule.times != 0 && edges >= schedule.times * 2) return UINT64_MAX;
  return schedule.edge_ns(edges + 1);
}

uint32_t faults_now(const FabricNic& nic, uint64_t now_ns) {
  uint32_t faults = nic.faults.load(std::memory_order_acquire);
  if ((faults & kCut) != 0) faults |= kLinkDown;
  if ((faults & kFlap) == 0) return faults;
  return faults | ((Schedule(nic.flap).edges(now_ns) & 1) != 0 ? uint32_t{kLinkDown} : 0);
}

uint32_t faults_now(const FabricNic& nic) {
  return faults_now(nic, monotonic_ns());
}

void flap_settle(FabricFile& fabric, FabricNic& nic, uint64_t now_ns) {
  if ((nic.faults.load(std::memory_order_acquire) & kFlap) == 0) return;
  const Schedule schedule(nic.flap);
  const uint64_t edges = schedule.edges(now_ns);
  uint64_t told = nic.flap.edges_told.load(std::memory_order_acquire);
  while (told < edges) {
    if (!nic.flap.edges_told.compare_exchange_weak(told, told + 1)) continue;
    const bool down = ++told % 2 == 1;
    if (down) nic.link_downed.fetch_add(1, std::memory_order_relaxed);
    const uint64_t ago_ns = now_ns - schedule.edge_ns(told);
    event_log(fabric, {.kind = EventKind::kLink,
                       .nic = nic_number(fabric, nic),
                       .ago_ns = ago_ns,
                       .text = down ? "down" : "up"});
  }
}

}  // namespace cxemu

// Extended completion queues (ibv_create_cq_ex): what lies between ibv_start_poll and ibv_end_poll.
//
// A call takes completions from beneath by the batch, as a classic poll does, and hands them out
// one by one: the functions that read a completion's fields look into the batch. So whatever
// happens between start and end holds nobody up, neither the control thread nor a second CQ. A
// member's own ibv_start_poll is used only for what an ibv_wc does not hold (`needs_device`).
#pragma once

#include <array>
#include <atomic>

#include "group/completion_queue.h"

namespace shift::group {

struct ExtendedPoll {
  explicit ExtendedPoll(CompletionQueue& queue) : cq(queue) {}

  static constexpr uint32_t kBatch = 16;

  CompletionQueue& cq;
  ibv_cq_ex* real = nullptr;  // the default's
  bool needs_device = false;  // fields were asked for that only `real` can read
  uint32_t read_flags = 0;    // IBV_WC_EX_* that may be read from `real`
  uint64_t clock_khz = 0;     // of the default NIC, 0: unknown
  // Its clock, less the host's in ticks of it. Set by what is taken from beneath, in a hot section;
  // read by whoever makes a completion, on another thread perhaps.
  std::atomic<uint64_t> clock_lead{0};

  // The thread between start and end, by thread_mark(). Set inside a hot section, or under the
  // CQ's mutex while none runs; so two threads never both set it. Until it is taken back the batch
  // is that thread's; afterwards it belongs to the hot section or the mutex again.
  std::atomic<const void*> open{nullptr};
  uint32_t next = 0, count = 0;  // batch entries [next, count) have not been handed out
  std::array<ibv_wc, kBatch> batch;
  std::array<WcExtra, kBatch> batch_extra;  // valid with needs_device, and after a slow poll

  // What the default NIC's clock showed, and an estimate of what it shows, at a CLOCK_MONOTONIC.
  void clock_set(uint64_t ticks, uint64_t host_ns) {
    clock_lead.store(ticks - ticks_of(host_ns), std::memory_order_relaxed);
  }
  uint64_t clock_at(uint64_t host_ns) const {
    return clock_lead.load(std::memory_order_relaxed) + ticks_of(host_ns);
  }
  uint64_t ticks_of(uint64_t ns) const {  // their product does not fit into 64 bits
    return static_cast<uint64_t>(static_cast<unsigned __int128>(ns) * clock_khz / 1'000'000);
  }
  // Differs from thread to thread.
  static const void* thread_mark() { return &tls_slot; }
  // Whether the caller, who holds the CQ's mutex and has quiet, may touch the batch.
  bool may_poll() const {
    const void* owner = open.load(std::memory_order_acquire);
    return owner == nullptr || owner == thread_mark();
  }

  // Polls `real` by its own extended calls. In a hot section or under the CQ's mutex.
  int harvest(int most, ibv_wc* wcs, WcExtra* extras);

  // Under the CQ's mutex, from lock_poll():
  // what a program left behind when it ended its poll early comes first in a classic one.
  void put_back();
  void forget(uint32_t qpn);
};

// What is known of a completion's time when its NIC does not say it: the host's, and an estimate
// of the default NIC's clock. Nothing for a CQ that has no use for it.
WcExtra extra_now(const CompletionQueue& cq);

// ibv_start_poll and ibv_next_poll when the hot path is barred: refills the batch. False: nothing
// is there. `begin`: this is a start, else the caller is between start and end.
[[gnu::cold]] bool extended_fill_slow(CompletionQueue& cq, bool begin);
// Arming with completions in the batch: raises the event that the NIC would.
[[gnu::cold]] void extended_wake(CompletionQueue& cq);

}  // namespace shift::group

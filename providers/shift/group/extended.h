// Extended completion queues (ibv_create_cq_ex): the calls from ibv_start_poll to ibv_end_poll.
//
// A call takes a batch of completions from the real CQ, as a classic poll does, and hands them out
// one by one: the functions that read a completion's fields look into the batch. So nothing that
// happens between start and end holds up another thread, neither the control thread nor one that
// polls a second CQ. A member's own ibv_start_poll is used only for fields that an ibv_wc does not
// have (`needs_device`).
#pragma once

#include <array>
#include <atomic>

#include "group/completion_queue.h"

namespace shift::group {

struct ExtendedPoll {
  explicit ExtendedPoll(CompletionQueue& queue) : cq(queue) {}

  static constexpr uint32_t kBatch = 16;

  CompletionQueue& cq;
  ibv_cq_ex* real = nullptr;  // the default's CQ
  bool needs_device = false;  // the application asked for fields that only `real` can read
  uint32_t read_flags = 0;    // the IBV_WC_EX_* that may be read from `real`
  uint64_t clock_khz = 0;     // of the default NIC; 0: unknown
  // The clock of the default NIC minus the host's, in ticks of the NIC's. A hot section sets it
  // when it takes completions; a thread that makes a completion reads it, which may be another
  // thread.
  std::atomic<uint64_t> clock_lead{0};

  // The thread that is between start and end, by thread_mark(). It is set inside a hot section, or
  // under the CQ's mutex while none runs; so two threads never both set it. Until it is set back,
  // the batch belongs to that thread; afterwards it belongs to the hot section or the mutex again.
  std::atomic<const void*> open{nullptr};
  uint32_t next = 0, count = 0;  // batch entries [next, count) have not been handed out
  std::array<ibv_wc, kBatch> batch;
  std::array<WcExtra, kBatch> batch_extra;  // valid with needs_device, and after a slow poll

  // Sets what the default NIC's clock showed at a time of CLOCK_MONOTONIC; clock_at() estimates
  // what it shows at another time.
  void clock_set(uint64_t ticks, uint64_t host_ns) {
    clock_lead.store(ticks - ticks_of(host_ns), std::memory_order_relaxed);
  }
  uint64_t clock_at(uint64_t host_ns) const {
    return clock_lead.load(std::memory_order_relaxed) + ticks_of(host_ns);
  }
  uint64_t ticks_of(uint64_t ns) const {  // the product does not fit into 64 bits
    return static_cast<uint64_t>(static_cast<unsigned __int128>(ns) * clock_khz / 1'000'000);
  }
  // A different value for each thread.
  static const void* thread_mark() { return &tls_slot; }
  // Whether the caller may touch the batch. It holds the CQ's mutex, and no hot section runs.
  bool may_poll() const {
    const void* owner = open.load(std::memory_order_acquire);
    return owner == nullptr || owner == thread_mark();
  }

  // Polls `real` with its own extended calls. Called in a hot section or under the CQ's mutex.
  int harvest(int most, ibv_wc* wcs, WcExtra* extras);

  // For these two the caller holds the CQ's mutex from lock_poll(). put_back(): completions that a
  // program has left when it ended its extended poll early come first in the next classic poll.
  void put_back();
  void forget(uint32_t qpn);
};

// The time of a completion whose NIC does not say it: the host's time, and an estimate of the
// default NIC's clock. Empty for a CQ without needs_device.
WcExtra extra_now(const CompletionQueue& cq);

// Does the work of ibv_start_poll and ibv_next_poll when the hot path is barred: refills the batch.
// False: there is no completion. `begin`: the call is a start; otherwise the caller is between
// start and end.
[[gnu::cold]] bool extended_fill_slow(CompletionQueue& cq, bool begin);
// Called when the CQ is armed while completions are in the batch: raises the event that the NIC
// would.
[[gnu::cold]] void extended_wake(CompletionQueue& cq);

}  // namespace shift::group

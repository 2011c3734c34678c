// Counts the default member's completions on the healthy path; only poll.cc includes this file.
#pragma once

#include "group/completion.h"

namespace shift::ops {

// Returns the counters of a completion's QP. For a QP that is not protected, it returns
// CompletionQueue::unprotected, whose counts nothing reads.
[[gnu::noinline]] group::Counters* find_counters(group::CompletionQueue* q, uint32_t qpn);

// Counts the `got` completions that were polled into `wc`; cold code looks at an error. Called
// inside the hot section. Returns how many of `most` are filled in. `extended`: `wc` is the batch
// of an extended poll; after an error the batch no longer belongs to the caller, and -1 is
// returned.
template <bool extended = false>
[[gnu::always_inline]] inline int count_polled(group::CompletionQueue* q, int most, ibv_wc* wc,
                                               group::WcExtra* extra, int got) {
  for (int i = 0; i < got;) {
    // Completions come in runs of one QP and direction. A run is counted in a register, because an
    // addition to memory for each completion makes a chain of stores and loads.
    if (wc[i].status != IBV_WC_SUCCESS) [[unlikely]] {
      if constexpr (!extended) return group::poll_error(*q, most, wc, extra, i, got);
      group::poll_error_extended(*q, wc, extra, i, got);
      return -1;
    }
    const uint32_t qpn = wc[i].qp_num;
    const uint32_t direction = wc[i].opcode & IBV_WC_RECV;
    const int first = i;
    do {
      i++;
      // The status is checked first, because a failed completion has no valid opcode.
    } while (i < got && wc[i].status == IBV_WC_SUCCESS && wc[i].qp_num == qpn &&
             (wc[i].opcode & IBV_WC_RECV) == direction);
    group::Counters* counters = qpn == q->last_qpn ? q->last_counters : find_counters(q, qpn);
    counters->done[direction / IBV_WC_RECV] += static_cast<uint64_t>(i - first);
  }
  return got;
}
static_assert(IBV_WC_RECV == 1 << 7);

}  // namespace shift::ops

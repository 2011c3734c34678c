// Counts the default member's completions on the healthy path; only poll.cc includes this file.
#pragma once

#include "group/completion.h"

namespace shift::ops {

// Returns the counters of a completion's QP. For a QP that is not protected, it returns
// CompletionQueue::unprotected, whose counts nothing reads.
[[gnu::noinline]] group::Counters* find_counters(group::CompletionQueue* q, uint32_t qpn);

// IBV_WC_RECV for the completion of a receive, or 0. Only a completion that is a success has a
// valid opcode. The provider has just written status and opcode: to load both at once would have to
// wait for its stores.
[[gnu::always_inline]] inline uint32_t direction_of(const ibv_wc& wc) {
  return wc.opcode & IBV_WC_RECV;
}

// Counts the `got` completions that were polled into `wc`; cold code looks at an error. Called
// inside the hot section. Returns how many of `most` are filled in. `extended`: `wc` is the batch
// of an extended poll; after an error the batch no longer belongs to the caller, and -1 is
// returned.
template <bool extended = false>
[[gnu::always_inline]] inline int count_polled(group::CompletionQueue* q, int most, ibv_wc* wc,
                                               group::WcExtra* extra, int got) {
  const ibv_wc* const end = wc + got;
  for (const ibv_wc* at = wc; at < end;) {
    // Completions come in runs of one QP and direction. A run is counted in a register, because an
    // addition to memory for each completion makes a chain of stores and loads.
    if (at->status != IBV_WC_SUCCESS) [[unlikely]] {
      const int i = static_cast<int>(at - wc);
      if constexpr (!extended) return group::poll_error(*q, most, wc, extra, i, got);
      group::poll_error_extended(*q, wc, extra, i, got);
      return -1;
    }
    const uint32_t qpn = at->qp_num;
    const uint32_t direction = direction_of(*at);
    const ibv_wc* const first = at;
    do {
      at++;
    } while (at != end && at->status == IBV_WC_SUCCESS && at->qp_num == qpn &&
             direction_of(*at) == direction);
    group::Counters* counters = qpn == q->last_qpn ? q->last_counters : find_counters(q, qpn);
    counters->done[direction / IBV_WC_RECV] += static_cast<uint64_t>(at - first);
  }
  return got;
}

}  // namespace shift::ops

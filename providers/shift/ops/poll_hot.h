// The default member's completions on the healthy path; for poll.cc alone.
#pragma once

#include "group/completion.h"

namespace shift::ops {

// The counters for a completion's QP; those that count for nobody for a QP that is not ours.
[[gnu::noinline]] group::Counters* find_counters(group::CompletionQueue* q, uint32_t qpn);

// Counts what was polled into `wc`; an error is looked at on the cold side. Inside the hot section.
// Returns how many of `most` are filled in. `extended`: `wc` is the batch, which is not the
// caller's any more after an error; -1 then.
template <bool extended = false>
[[gnu::always_inline]] inline int count_polled(group::CompletionQueue* q, int most, ibv_wc* wc,
                                               group::WcExtra* extra, int got) {
  for (int i = 0; i < got;) {
    // Completions come in runs of one QP and direction: counted in a register, since adding to
    // memory for each of them makes a chain of stores and loads.
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
      // The status first: the opcode of a failed completion is not valid.
    } while (i < got && wc[i].status == IBV_WC_SUCCESS && wc[i].qp_num == qpn &&
             (wc[i].opcode & IBV_WC_RECV) == direction);
    group::Counters* counters = qpn == q->last_qpn ? q->last_counters : find_counters(q, qpn);
    counters->done[direction / IBV_WC_RECV] += static_cast<uint64_t>(i - first);
  }
  return got;
}
static_assert(IBV_WC_RECV == 1 << 7);

}  // namespace shift::ops

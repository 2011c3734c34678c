// Sums of counts. They come from strangers, so a sum stays at its largest value instead of
// wrapping.
#pragma once

#include <cstdint>

#include "state/layout.h"

namespace shift::ctl {

inline uint64_t add(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

inline void counters_add(state::Counters& to, const state::Counters& from) {
  for (size_t i = 0; i < to.switches.size(); i++)
    to.switches[i] = add(to.switches[i], from.switches[i]);
  for (size_t i = 0; i < to.pauses.size(); i++) to.pauses[i] = add(to.pauses[i], from.pauses[i]);
  for (size_t i = 0; i < to.failed.size(); i++) to.failed[i] = add(to.failed[i], from.failed[i]);
  to.pause_us = add(to.pause_us, from.pause_us);
  to.replayed = add(to.replayed, from.replayed);
  to.completed = add(to.completed, from.completed);
  to.stock_qps = add(to.stock_qps, from.stock_qps);
  to.protected_qps = add(to.protected_qps, from.protected_qps);
  to.unprotected_qps = add(to.unprotected_qps, from.unprotected_qps);
  to.drains_called_off = add(to.drains_called_off, from.drains_called_off);
}

}  // namespace shift::ctl

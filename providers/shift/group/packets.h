// For modes that ask the responder: which packet numbers (PSNs) the WRs of a send queue have on the
// connection that carries them, and which WRs were executed when the peer's responder expected a
// certain PSN. Read only after a fence.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "group/journal.h"

namespace shift::group {

inline constexpr uint32_t kPsnMask = 0xffffff;

// How far the peer has executed: all WRs before `position`, and so many packets of the WR there.
// Only a plain WRITE is ever continued in its middle; any other WR runs again as a whole.
struct Executed {
  uint64_t position = 0;
  uint32_t packets = 0;

  auto operator<=>(const Executed&) const = default;
};

// What was sent on one connection. Written on the control thread, under send.mutex.
struct SentPackets {
  bool known = false;  // false: nothing can be said about this connection
  uint32_t begin = 0;  // the PSN of its first packet
  // The first WR of the journal that the connection was given, the PSN at which this WR begins, and
  // how many of its packets an earlier connection had executed already.
  uint64_t from = 0;
  uint32_t psn = 0;
  uint32_t skipped = 0;
  uint32_t total = 0;  // SendJournal::packets() before that WR
  // The empty WRITEs of the layer's own among the WRs, one packet each: for each of them the
  // position of the WR after it.
  std::vector<uint64_t> markers;

  // Adds a marker. WRs before `first` have completed, so markers among them need not be remembered
  // one by one.
  void marker_add(uint64_t position, uint64_t first);
};

// Whether so few packets belong to these WRs that no two of their numbers are alike.
bool numbers_differ(const SendJournal& journal, const SentPackets& sent, uint64_t first,
                    uint64_t posted);

// How much the peer has executed of the WRs from `first` (the first without a completion) to
// `posted` (the end of those that were posted) when its responder expects `psn` next. nullopt: this
// `psn` is impossible.
std::optional<Executed> executed_before(const SendJournal& journal, const SentPackets& sent,
                                        uint64_t first, uint64_t posted, uint32_t psn);

}  // namespace shift::group

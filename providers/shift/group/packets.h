// The mode exact: which packet numbers (PSNs) the WRs of a send queue have on the connection that
// carries them, and which of them were executed when the peer's responder stood at a certain one.
// Read after a fence only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "group/journal.h"

namespace shift::group {

inline constexpr uint32_t kPsnMask = 0xffffff;

// How far the peer got: all WRs before `position`, and so many packets of the one there. Only a
// plain WRITE is ever continued in its middle; everything else runs again as a whole.
struct Executed {
  uint64_t position = 0;
  uint32_t packets = 0;

  auto operator<=>(const Executed&) const = default;
};

// What was sent on one connection. Control thread, and under send.mutex.
struct SentPackets {
  bool known = false;  // false: nothing can be said about this connection
  uint32_t begin = 0;  // PSN of its first packet
  // The first WR of the journal that it was given, where that one begins, and how many of its
  // packets an earlier connection had executed already.
  uint64_t from = 0;
  uint32_t psn = 0;
  uint32_t skipped = 0;
  uint32_t total = 0;  // SendJournal::packets() before that WR
  // Empty WRITEs of the layer's own among the WRs, one packet each: the position of the WR after
  // each.
  std::vector<uint64_t> markers;

  // One more of these; what lies before `first` has completed and need not be remembered singly.
  void marker_add(uint64_t position, uint64_t first);
};

// What was executed of the WRs that were posted (those before `posted`) and have not completed
// (`first` is the first of these), when the responder expects `psn` next. nullopt: that cannot be.
std::optional<Executed> executed_before(const SendJournal& journal, const SentPackets& sent,
                                        uint64_t first, uint64_t posted, uint32_t psn);

}  // namespace shift::group

#include "group/packets.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "util/planted.h"

namespace shift::group {
namespace {

// Half of all numbers: if more packets are under way, "before" and "after" cannot be told apart.
constexpr uint64_t kWindowMax = 1u << 23;

bool continues_in_the_middle(uint32_t opcode) {
  return !SHIFT_PLANT(tail_runs_whole) && opcode == IBV_WR_RDMA_WRITE;
}

}  // namespace

// A READ takes as many numbers as its response has packets (IBA 9.7.3.1).
uint32_t SendJournal::packets_of(uint32_t opcode, uint64_t length) const {
  if (is_atomic(opcode)) return 1;
  if (opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW) return 0;
  return 1 + static_cast<uint32_t>(packets_further(length, mtu_shift_));
}

uint32_t SendJournal::packets_of_rare(const ibv_send_wr& wr) const {
  uint64_t length = 0;
  for (int i = 0; i < wr.num_sge && wr.opcode != IBV_WR_BIND_MW; i++) {
    if (SHIFT_PLANT(first_sge_counts) && i > 0) break;
    length += wr.sg_list[i].length;
  }
  return packets_of(wr.opcode, length);
}

uint64_t SendJournal::length_at(uint64_t position) const {
  const SendEntry& entry = at(position);
  if (entry.send_flags & IBV_SEND_INLINE) return entry.inline_length;
  if (entry.num_sge == 1) return entry.sge.length;
  const uint8_t* extra = extension_.get() + (position & mask_) * stride_;
  uint64_t length = 0;
  for (int32_t i = 0; i < entry.num_sge; i++) {
    ibv_sge sge;
    std::memcpy(&sge, extra + sizeof sge * static_cast<size_t>(i), sizeof sge);
    length += sge.length;
  }
  return length;
}

uint32_t SendJournal::packets_at(uint64_t position) const {
  return packets_of(at(position).opcode, length_at(position));
}

void SendJournal::add_chain(const ibv_send_wr* wr) {
  for (; wr != nullptr; wr = wr->next) add(*wr);
}

void SentPackets::marker_add(uint64_t position, uint64_t first) {
  psn += static_cast<uint32_t>(std::erase_if(markers, [first](uint64_t m) { return m <= first; }));
  markers.push_back(position);
}

bool numbers_differ(const SendJournal& journal, const SentPackets& sent, uint64_t first,
                    uint64_t posted) {
  uint64_t packets = sent.markers.size() + ((sent.psn - sent.begin) & kPsnMask);
  for (uint64_t i = std::max(first, sent.from); i < posted; i++) packets += journal.packets_at(i);
  return packets < kWindowMax;
}

std::optional<Executed> executed_before(const SendJournal& journal, const SentPackets& sent,
                                        uint64_t first, uint64_t posted, uint32_t psn) {
  if (!sent.known || posted < sent.from || journal.mtu() == 0) return std::nullopt;
  const uint64_t start = std::max(first, sent.from);
  const auto markers_at = [&](uint64_t position) {
    if (SHIFT_PLANT(markers_forgotten)) return 0u;
    return static_cast<uint32_t>(std::ranges::count(sent.markers, position));
  };
  const auto packets_here = [&](uint64_t position) {
    return journal.packets_at(position) - (position == sent.from ? sent.skipped : 0);
  };

  // The PSN at which `start` begins. It is counted back from the newest WR, since the journal has
  // forgotten the older ones.
  uint32_t total = journal.packets();
  for (uint64_t i = journal.head(); i > start; i--) total -= journal.packets_at(i - 1);
  uint32_t begins = sent.psn + (total - sent.total);
  if (start > sent.from) begins -= sent.skipped;
  for (uint64_t m : sent.markers) begins += m <= start;
  // An honest peer can expect no smaller PSN: what has completed was executed.
  const uint32_t lowest = start == sent.from ? sent.begin : begins - markers_at(start);

  const uint64_t reached = (psn - lowest) & kPsnMask;
  uint64_t at = (begins - lowest) & kPsnMask;
  Executed executed{start, start == sent.from ? sent.skipped : 0};
  bool is_over = false;
  for (uint64_t i = start; i < posted; i++) {
    if (i > start) at += markers_at(i);
    const uint64_t end = at + packets_here(i);
    if (end >= kWindowMax && !SHIFT_PLANT(psn_window_unchecked)) return std::nullopt;
    if (!is_over && reached >= end) {
      executed = {i + 1, 0};
    } else if (!std::exchange(is_over, true) && reached > at &&
               continues_in_the_middle(journal.at(i).opcode)) {
      executed.packets += static_cast<uint32_t>(reached - at);
    }
    at = end;
  }
  if (posted > start) at += markers_at(posted);
  if (reached > at) return std::nullopt;
  return executed;
}

}  // namespace shift::group

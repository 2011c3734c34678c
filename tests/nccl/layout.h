// The memory that the two ends share, and what each message is: pure functions of the options. So
// the receiver knows what to expect without hearing it over the path under test.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pattern.h"
#include "pattern_options.h"

namespace traffic::nccl {

// A clear-to-send entry: one receive that the sender may use. The receiving end WRITEs the entry
// into the sender's ring, which the sender polls. A replayed WRITE may read the entry again while
// its slot is filled for the next use. `head` is filled in last and read first, so a mixture of two
// uses has a head that does not fit its tail; `tail` arrives last.
struct CtsEntry {
  uint64_t head;
  uint64_t address;
  uint32_t rkey;
  uint32_t size;
  uint32_t count;  // how many entries this slot has
  uint32_t tag;
  uint64_t spare[3];
  uint64_t tail;  // group number + 1
};
static_assert(sizeof(CtsEntry) == kInlineMax);

// The piece of a message that goes over one QP.
struct Part {
  uint32_t offset;
  uint32_t length;
};

// One direction of one connection. In shift-nccl a group is the messages that one notification on
// each QP covers.
class Layout {
 public:
  Layout(const Options& options, int direction, uint32_t connection)
      : options_(options), direction_(direction), connection_(connection) {}

  const Options& options() const { return options_; }
  uint32_t connection() const { return connection_; }

  uint32_t count(uint64_t group) const {
    return options_.group == 1 ? 1 : 1 + static_cast<uint32_t>(choice(group, 0) % options_.group);
  }
  uint32_t size(uint64_t group, uint32_t index) const;
  uint32_t tag(uint64_t group, uint32_t index) const {
    return static_cast<uint32_t>(choice(group, index) >> 32);
  }
  // The immediate. As with NCCL it is the size of a single message; the sizes of several messages
  // are written to memory.
  uint32_t imm(uint64_t group) const {
    return count(group) == 1 ? size(group, 0) : 0x80000000u | static_cast<uint32_t>(group);
  }
  bool is_separate(uint64_t group) const {
    return count(group) == 1 && options_.separate_from != 0 &&
           size(group, 0) >= options_.separate_from;
  }

  // A group uses `qp_count` QPs from `first_qp` on.
  uint32_t first_qp(uint64_t group) const {
    return options_.split ? 0 : static_cast<uint32_t>(group % options_.qps);
  }
  uint32_t qp_count() const { return options_.split ? options_.qps : 1; }
  Part part(uint64_t group, uint32_t index, uint32_t qp) const;
  // The length of the request that carries the notification.
  uint32_t notifying_length(uint64_t group, uint32_t qp) const {
    if (count(group) > 1) return count(group) * 4;
    return is_separate(group) ? 0 : part(group, 0, qp).length;
  }

  uint32_t slot_size() const { return ((options_.size + 63u) & ~63u) + 64; }
  // There are more slots than groups in flight, so that a slot stays poisoned for a while before
  // its next use.
  uint32_t target_slots() const { return options_.depth + std::max(4u, options_.depth / 2); }
  uint32_t source_slots() const { return options_.depth * 2; }
  static uint64_t slot_index(uint64_t group, uint32_t slots, uint32_t index) {
    return group % slots * kGroupMax + index;
  }

  uint64_t payload_key(uint64_t group, uint32_t index) const {
    return pattern_key(options_.seed, Domain::kPayload, direction_, connection_,
                       group * kGroupMax + index);
  }
  uint64_t poison_key(Domain domain, uint64_t slot) const {
    return pattern_key(options_.seed, domain, direction_, connection_, slot);
  }

 private:
  uint64_t choice(uint64_t group, uint32_t index) const {
    return pattern_key(options_.seed, Domain::kChoice, direction_, connection_,
                       group * kGroupMax + index);
  }

  const Options options_;
  const int direction_;
  const uint32_t connection_;
};

inline uint32_t Layout::size(uint64_t group, uint32_t index) const {
  if (!options_.random_size) return options_.size;
  uint64_t dice = choice(group, index) >> 8;
  // A third of the messages are small, for the edge cases.
  uint32_t limit = dice % 3 == 0 ? std::min(options_.size, 160u) : options_.size;
  uint32_t size = static_cast<uint32_t>((dice >> 4) % (uint64_t{limit} + 1));
  // Two messages that follow each other on a QP have different sizes, since a notification says
  // nothing but the size.
  if (limit < 64) return size;
  uint64_t turn = group / (options_.split ? 1 : options_.qps);
  size = (size & ~31u) | static_cast<uint32_t>(turn % 32);
  return size <= limit ? size : size - 32;
}

inline Part Layout::part(uint64_t group, uint32_t index, uint32_t qp) const {
  uint32_t total = size(group, index);
  if (!options_.split) return {0, total};
  uint32_t chunk = ((total + options_.qps - 1) / options_.qps + 127u) & ~127u;
  uint32_t offset = std::min(total, chunk * qp);
  return {offset, std::min(chunk, total - offset)};
}

}  // namespace traffic::nccl

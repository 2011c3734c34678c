// The receive WRs of one QP, or of all QPs on one SRQ. Each must be consumed once, in the order of
// posting, and nothing may write to its buffer before or after its message. A buffer stays poisoned
// while all others are used once, and is then posted again.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "report.h"
#include "transport.h"
#include "wr_id.h"

namespace traffic {

class ReceiveQueue {
 public:
  // Keeps `posted_max` receives posted out of twice as many buffers. `poison_seed` is the key of
  // the bytes that a buffer holds while nothing may write to it.
  ReceiveQueue(uint32_t post_qp, uint32_t posted_max, uint32_t buffer_size, bool is_shared,
               uint64_t poison_seed, Transport* transport, Report* report);

  // Posts the missing receives. Returns 0 or errno.
  int refill();
  // Judges the WR of one receive completion and returns its buffer, or an empty one when no such
  // receive was posted.
  std::span<std::byte> consume(uint64_t wr_id);
  // Returns the first byte of `buffer` at or after `from` that is no longer poison, or -1.
  ptrdiff_t touched_from(std::span<const std::byte> buffer, size_t from) const;
  // Poisons a consumed buffer again, after its content was judged.
  void release(std::span<std::byte> buffer, size_t used);
  // Checks at the end of the run that every buffer is intact.
  void finish();

  uint64_t consumed() const { return consumed_count_; }

 private:
  uint64_t wr_id_of(uint64_t serial) const { return wr_id_make(kReceiveTag, post_qp_, serial); }
  std::span<std::byte> buffer_of(uint64_t serial) const {
    return region_.slot(serial % buffers_, buffer_size_);
  }
  uint64_t key_of(const std::byte* buffer) const;
  void check_intact(uint64_t serial, const char* when);

  const uint32_t post_qp_;
  const uint32_t posted_max_;
  const uint32_t buffers_;
  const uint32_t buffer_size_;
  const bool is_shared_;
  const uint64_t poison_seed_;
  Transport* const transport_;
  Report* const report_;
  Region region_;
  uint64_t posted_count_ = 0;
  uint64_t consumed_count_ = 0;
  uint64_t lowest_waiting_ = 0;        // all serials below it are consumed
  std::set<uint64_t> consumed_above_;  // consumed serials above lowest_waiting_
};

}  // namespace traffic

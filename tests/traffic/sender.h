// The sending end of one flow: makes messages, keeps their source memory, judges what READs and
// atomics brought, and watches that nobody writes to local buffers after their completion.
#pragma once

#include <cstdint>

#include "plan.h"
#include "report.h"
#include "transport.h"

namespace traffic {

class Sender {
 public:
  // `counter` is where FETCH_ADDs of this flow go at the other end.
  Sender(const Plan& plan, Transport* transport, Report* report);

  void target_set(RemoteRegion target, RemoteRegion control) {
    target_ = target;
    control_ = control;
  }
  // Messages below `upto` may be posted. Never goes back: an old credit WRITE executed again only
  // repeats an older value.
  void credit(uint64_t upto) {
    if (upto > credit_) credit_ = upto;
  }
  // One more message, which is signaled, so that everything before it completes.
  void stop_soon() {
    if (total_ == UINT64_MAX) total_ = next_ + 1;
  }

  bool may_post() const {
    return next_ < total_ && next_ < credit_ && next_ - retired_ < plan_.window();
  }
  // Fills the source memory of the next message and returns its WR, without wr_id.
  SendRequest make_next();
  // After the post call returned: an inline payload was copied, so its buffer is scribbled at once.
  void posted(uint64_t number);
  // The message completed (or a later signaled one did).
  void retire(uint64_t number);
  void finish();

  uint64_t posted_count() const { return next_; }
  uint64_t retired() const { return retired_; }
  uint64_t total() const { return total_; }
  uint64_t credit_limit() const { return credit_; }
  bool is_done() const { return retired_ == total_; }
  uint64_t bytes_retired() const { return bytes_retired_; }
  const Plan& plan() const { return plan_; }

 private:
  std::span<std::byte> source_slot(uint64_t number) const {
    return source_.slot(number % plan_.source_slots(), plan_.slot_size());
  }
  uint64_t local_key(uint64_t number) const {
    return plan_.poison_key(Domain::kLocalPoison, number % plan_.source_slots());
  }
  bool is_signaled(uint64_t number) const;
  void fill_payload(uint64_t number, std::span<std::byte> slot) const;
  void check_read(uint64_t number);
  void check_atomic(uint64_t number);
  void check_scrubbed(uint64_t slot, const char* when);

  const Plan plan_;
  Report* const report_;
  Region source_;
  RemoteRegion target_, control_;
  uint64_t next_ = 0;     // next message to post
  uint64_t retired_ = 0;  // all below it are complete
  uint64_t credit_ = 0;
  uint64_t total_;
  uint64_t bytes_retired_ = 0;
};

// First bytes of every SEND: who sent it and which one it is.
struct SendHeader {
  uint32_t magic;
  uint32_t flow;  // direction << 16 | qp
  uint32_t number;
  uint32_t size;
};
static_assert(sizeof(SendHeader) == kHeaderBytes);
inline constexpr uint32_t kHeaderMagic = 0x54465453;

inline uint32_t header_flow(const Plan& plan) {
  return static_cast<uint32_t>(plan.direction()) << 16 | plan.qp();
}

// Offsets in the control region that each end gives to the other.
inline constexpr uint64_t kControlCredit = 0;    // at the sender: messages granted so far
inline constexpr uint64_t kControlCounter = 64;  // at the receiver: FETCH_ADD target
inline constexpr uint64_t kControlBytes = 128;   // per QP

}  // namespace traffic

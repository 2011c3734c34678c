// Completion queue: writes CQEs as the device does, detects overruns, and raises completion events
// as the application arms them.
#pragma once

#include <cstdint>

#include "nic/mlx5_layout.h"
#include "nic/nic.h"

namespace cxemu {

struct Cqe {
  CqeOpcode opcode;
  uint8_t wqe_opcode = 0;  // requester only
  uint16_t wqe_counter = 0;
  uint32_t qpn = 0;
  uint32_t uidx = 0;
  uint32_t byte_count = 0;
  uint32_t imm_be = 0;
  uint32_t remote_qpn = 0;
  bool solicited = false;
  bool grh = false;
  CqePacket packet = kCqePacketRoceV1;  // with grh
  Syndrome syndrome = kSyndromeNone;
};

struct Cq {
 public:
  // Marks every entry invalid and sets the arm record to an impossible value: the first arm value
  // that the library writes may be 0, which would look the same as a zeroed record.
  Cq(const CqConfig& config, uint32_t number);

  // Writes one entry. Returns false when the queue is full: CQ_ERR was raised, and the queue takes
  // no more entries.
  bool write(const Cqe& cqe, uint64_t timestamp_ns);
  // Moves to another ring. Returns false if that ring could not hold the entries that the
  // application has not taken yet, or if the queue takes no more entries.
  bool resize(void* buffer, uint32_t cqe_count, uint32_t cqe_size);
  // Raises the event that the application armed, if its condition holds. Returns whether it did so.
  bool event_check();

  uint32_t number() const { return number_; }
  uint32_t comp_events() const { return comp_events_; }
  uint32_t async_events() const { return async_events_; }
  bool has_channel() const { return config_.channel_fd >= 0; }

  int users = 0;  // how many QP ends complete here

 private:
  CqeLayout* entry(uint64_t index) const;
  uint8_t owner_bit(uint64_t index) const { return (index & config_.cqe_count) != 0 ? 1 : 0; }
  // How many entries the application took, computed from the low bits in a doorbell.
  uint64_t taken(uint32_t doorbell) const;

  CqConfig config_;
  uint32_t number_;
  // Number of entries written; these counters never wrap. The ring and the doorbells have their low
  // bits.
  uint64_t producer_ = 0;
  uint64_t solicited_producer_ = 0;  // after the last solicited or error entry
  // producer_ at the last event. Entries up to there never raise another event, even when the
  // application arms before it takes them, as perftest does.
  uint64_t notified_producer_ = 0;
  uint32_t arm_handled_;  // arm value (host order) that already had its event
  uint32_t comp_events_ = 0;
  uint32_t async_events_ = 0;
  bool overrun_ = false;
};

}  // namespace cxemu

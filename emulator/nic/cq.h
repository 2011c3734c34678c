// Completion queue: writes CQEs as the device does, watches for overrun, and raises completion
// events as the application arms them.
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
  Syndrome syndrome = kSyndromeNone;
};

struct Cq {
 public:
  // Marks every entry invalid and poisons the arm record: the first arm value that the library
  // writes may be 0, which a zeroed record could not be told from.
  Cq(const CqConfig& config, uint32_t number);

  // Writes one entry. False when the queue is full: CQ_ERR was raised, and the queue takes nothing
  // any more.
  bool write(const Cqe& cqe, uint64_t timestamp_ns);
  // Raises the event that the application armed, if its condition holds. Returns whether it did.
  bool event_check();

  uint32_t number() const { return number_; }
  uint32_t comp_events() const { return comp_events_; }
  uint32_t async_events() const { return async_events_; }
  bool has_channel() const { return config_.channel_fd >= 0; }

  int users = 0;  // QP ends that complete here

 private:
  CqeLayout* entry(uint32_t index) const;

  CqConfig config_;
  uint32_t number_;
  uint32_t producer_ = 0;
  uint32_t solicited_producer_ = 0;  // producer index after the last solicited or error entry
  bool solicited_any_ = false;
  uint32_t arm_handled_;  // arm value (host order) that already had its event
  uint32_t comp_events_ = 0;
  uint32_t async_events_ = 0;
  bool overrun_ = false;
};

}  // namespace cxemu

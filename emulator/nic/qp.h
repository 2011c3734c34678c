// State of one reliable-connected queue pair. Plain data: requester.cc and responder.cc are the two
// halves of the transport, qp_modify.cc the state machine of the verbs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "nic/cq.h"
#include "nic/nic.h"
#include "nic/roce.h"
#include "nic/wqe.h"

namespace cxemu {

class NicModel;

// A send WQE that was started: it has packet sequence numbers.
struct SendEntry {
  uint32_t first_psn;
  uint32_t packets;  // of its request, or of its READ response; 0: none, completes in its turn
  uint32_t length;
  uint16_t index, blocks;
  uint8_t opcode;
  bool signaled;
  bool needs_response;  // READ, atomic: an ACK is not enough
  bool counted;         // among Requester::reads_outstanding
};

// The half that sends requests. Entries are numbered by counters that wrap at 2^32; entry n lies at
// entries[n % size].
struct Requester {
  std::vector<SendEntry> entries;
  uint32_t entry_first = 0;    // oldest that is not completed
  uint32_t entry_end = 0;      // next to start
  uint32_t entry_tx = 0;       // being sent (entry_end: start the next WQE)
  uint32_t packet_tx = 0;      // next packet of entry_tx
  uint16_t ring_next = 0;      // block where the next WQE to start begins
  uint16_t ring_consumed = 0;  // block behind the last completed WQE

  uint32_t psn_una = 0;   // oldest not acknowledged
  uint32_t psn_sent = 0;  // behind the newest ever sent
  uint32_t psn_next = 0;  // first of the next WQE to start

  uint32_t reads_outstanding = 0;
  uint8_t retries = 0, rnr_retries = 0;  // used since the last progress
  bool rewound = false;  // a missing response was asked for again, no progress since
  uint64_t timer_start_ns = 0;
  uint64_t rnr_until_ns = 0;  // 0: not waiting

  // A local error of entry_tx. Reported once everything before it is completed.
  Syndrome error = kSyndromeNone;
  uint32_t error_entry = 0;

  // Decoded WQEs of entry_tx and of the READ that gets responses.
  SendWqe tx_wqe, rx_wqe;
  uint32_t tx_wqe_entry = 0, rx_wqe_entry = 0;
  bool tx_wqe_valid = false, rx_wqe_valid = false;

  SendEntry& entry(uint32_t n) { return entries[n & (entries.size() - 1)]; }
  bool outstanding() const { return psn_una != psn_sent; }
};

// READ response or atomic result that still has to be sent.
struct ResponseJob {
  uint32_t first_psn;
  uint32_t packets, sent;
  uint64_t address;
  uint32_t rkey, length;
  uint32_t msn;
  bool atomic;
  uint64_t original;
  bool again = false;  // answers a repeated request
};

struct AtomicRecord {
  uint32_t psn;
  uint32_t msn;
  uint64_t original;
};

// The half that answers requests.
struct Responder {
  uint32_t psn_expected = 0;
  uint32_t msn = 0;        // messages completed
  uint16_t ring_next = 0;  // next receive WQE

  // Message being received.
  enum class Message : uint8_t { kNone, kSend, kWrite } message = Message::kNone;
  uint64_t write_address = 0;
  uint32_t write_rkey = 0;
  uint32_t write_length = 0;
  uint32_t received = 0;  // bytes of the message so far
  bool recv_taken = false;
  RecvWqe recv;

  // Set by a NAK or RNR NAK: packets beyond psn_expected are dropped without another one.
  bool nak_sent = false;
  bool ack_pending = false;
  bool nak_pending = false;
  uint8_t nak_syndrome = 0;
  uint32_t nak_psn = 0;

  std::deque<ResponseJob> jobs;      // in PSN order; ACKs wait until it is empty
  std::deque<AtomicRecord> atomics;  // results kept for duplicates
};

struct Qp {
 public:
  Qp(NicModel& owner, const QpConfig& as_created, uint32_t own_number)
      : nic(owner), config(as_created), number(own_number) {}

  NicModel& nic;
  const QpConfig config;
  const uint32_t number;
  ibv_qp_state state = IBV_QPS_RESET;
  ibv_qp_attr attr = {};  // as modified; the live fields are in the two halves
  uint32_t remote_ipv4_be = 0;
  uint32_t mtu = 0;  // bytes
  uint32_t async_events = 0;
  bool drained_notify = false;  // SQ_DRAINED was asked for and is not raised yet
  Requester requester;
  Responder responder;

  SendRing send_ring() const {
    return {static_cast<const uint8_t*>(config.sq_buffer), config.sq_wqe_count};
  }
  RecvRing recv_ring() const {
    return {static_cast<const uint8_t*>(config.rq_buffer), config.rq_wqe_count,
            config.rq_wqe_shift};
  }
  uint16_t send_producer() const {
    return config.sq_wqe_count != 0 ? static_cast<uint16_t>(doorbell_load(&config.db[1])) : 0;
  }
  uint16_t recv_producer() const {
    return config.rq_wqe_count != 0 ? static_cast<uint16_t>(doorbell_load(&config.db[0])) : 0;
  }
  bool receives() const {
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD;
  }
  bool sends() const { return state == IBV_QPS_RTS || state == IBV_QPS_SQD; }
};

}  // namespace cxemu

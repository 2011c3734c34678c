// State of one queue pair, as plain data. requester.cc and responder.cc are the two halves of the
// reliable transport (RC, XRC), unreliable.cc with uc.cc and ud.cc are the other services, and
// qp_modify.cc is the state machine of the verbs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "nic/cq.h"
#include "nic/nic.h"
#include "nic/roce.h"
#include "nic/srq.h"
#include "nic/wqe.h"

namespace cxemu {

class NicModel;

// A send WQE that was started, so it has packet sequence numbers.
struct SendEntry {
  uint32_t first_psn;
  uint32_t packets;  // of its request, or of its READ response; 0: none, it completes in its turn
  uint32_t length;
  uint16_t index, blocks;
  uint8_t opcode;
  bool signaled;
  bool needs_response;  // READ, atomic: an ACK is not enough
  bool counted;         // among Requester::reads_outstanding
};

// The half that sends requests. Services without acknowledgements have no entries: the WQE that
// they send is tx_wqe, and it is done when its last packet is sent.
//
// Entries are numbered by counters that wrap at 2^32; entry n is entries[n % size]. There are as
// many as are needed at a time, a power of two, so that an idle QP takes little memory.
struct Requester {
  std::vector<SendEntry> entries = std::vector<SendEntry>(4);
  uint32_t entry_first = 0;    // oldest that is not completed
  uint32_t entry_end = 0;      // next to start
  uint32_t entry_tx = 0;       // being sent (entry_end: start the next WQE)
  uint32_t packet_tx = 0;      // next packet of entry_tx
  uint16_t ring_next = 0;      // block where the next WQE to start begins
  uint16_t ring_consumed = 0;  // block after the last completed WQE

  uint32_t psn_una = 0;   // oldest not acknowledged
  uint32_t psn_sent = 0;  // one after the newest ever sent
  uint32_t psn_next = 0;  // first of the next WQE to start

  uint32_t reads_outstanding = 0;
  uint8_t retries = 0, rnr_retries = 0;  // used since the last progress
  bool rewound = false;  // a missing response was asked for again, no progress since
  uint64_t timer_start_ns = 0;
  uint64_t rnr_until_ns = 0;  // 0: not waiting

  // A local error of entry_tx. It is reported once everything before it is completed.
  Syndrome error = kSyndromeNone;
  uint32_t error_entry = 0;

  // Decoded WQEs of entry_tx and of the READ that receives responses.
  SendWqe tx_wqe, rx_wqe;
  uint32_t tx_wqe_entry = 0, rx_wqe_entry = 0;
  bool tx_wqe_valid = false, rx_wqe_valid = false;

  // UC and UD: WQEs up to the block flush_end were posted before the QP left SQE.
  bool flush_left = false;
  uint16_t flush_end = 0;

  SendEntry& entry(uint32_t n) { return entries[n & (entries.size() - 1)]; }
  void entry_add(const SendEntry& added) {
    if (entry_end - entry_first == entries.size()) entries_grow();
    entry(entry_end++) = added;
  }
  void entries_grow() {
    std::vector<SendEntry> more(2 * entries.size());
    for (uint32_t n = entry_first; n != entry_end; n++) more[n & (more.size() - 1)] = entry(n);
    entries = std::move(more);
  }
  bool outstanding() const { return psn_una != psn_sent; }
};

// A READ response or atomic result that still has to be sent.
struct ResponseJob {
  uint32_t first_psn;
  uint32_t packets, sent;
  uint64_t address;
  uint32_t rkey, length;
  uint32_t pd;
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
  Srq* recv_srq = nullptr;  // where `recv` came from; nullptr: the QP's own ring

  // XRC: the queue that the request being executed names; it also determines the memory rights.
  Srq* request_srq = nullptr;

  // Set by a NAK or RNR NAK: packets beyond psn_expected are dropped without another NAK.
  bool nak_sent = false;
  bool ack_pending = false;
  bool nak_pending = false;
  uint8_t nak_syndrome = 0;
  uint32_t nak_psn = 0;

  std::deque<ResponseJob> jobs;      // in PSN order; ACKs wait until it is empty
  std::deque<AtomicRecord> atomics;  // results kept for duplicates
};

inline Service service_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_UC:
      return Service::kUc;
    case IBV_QPT_UD:
      return Service::kUd;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return Service::kXrc;
    default:
      return Service::kRc;
  }
}

// The last destination of a UD queue pair, so that it need not be looked up for each datagram.
struct Destination {
  bool known = false;
  uint32_t change_count = 0;  // of the fabric, at the look-up
  uint8_t gid[16] = {};
  uint32_t ipv4_be = 0;
};

struct Qp {
 public:
  Qp(NicModel& owner, const QpConfig& as_created, uint32_t own_number)
      : nic(owner), config(as_created), number(own_number), service(service_of(as_created.type)) {}

  NicModel& nic;
  const QpConfig config;
  const uint32_t number;
  const Service service;
  ibv_qp_state state = IBV_QPS_RESET;
  ibv_qp_attr attr = {};  // as modified; the live fields are in the two halves
  uint32_t remote_ipv4_be = 0;
  uint32_t mtu = 0;  // bytes
  uint32_t async_events = 0;
  FabricQp* entry = nullptr;    // in the fabric's table; nullptr: the table is full
  size_t watched_index = 0;     // among those of the engine
  bool drained_notify = false;  // SQ_DRAINED was requested and is not raised yet
  bool last_wqe_told = false;   // LAST_WQE_REACHED was raised
  Destination destination;
  Requester requester;
  Responder responder;

  SendRing send_ring() const {
    return {static_cast<const uint8_t*>(config.sq_buffer), config.sq_wqe_count, service};
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
  bool reliable() const { return service == Service::kRc || service == Service::kXrc; }
  // After an error of their send queue, UC and UD keep receiving (SQE).
  bool receives() const {
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
           state == IBV_QPS_SQE;
  }
  bool in_error() const { return state == IBV_QPS_ERR || state == IBV_QPS_SQE; }
  bool sends() const { return state == IBV_QPS_RTS || state == IBV_QPS_SQD; }
};

}  // namespace cxemu

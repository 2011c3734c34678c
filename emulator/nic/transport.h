// The transport (IBA volume 1, chapter 9): what its parts offer to the engine and to each other,
// and what they get from the engine.
#pragma once

#include <cstdint>

#include "nic/qp.h"
#include "nic/roce.h"
#include "nic/wire.h"

namespace cxemu {

struct TransportTuning {
  // ConnectX also raises short ACK timeouts to a minimum of its own. Here the minimum also keeps a
  // peer that waits for a core from looking dead.
  uint64_t ack_timeout_min_ns = 4'000'000;
  // Unacknowledged packets of one QP. A real NIC has no such limit, but it need not keep the
  // packets of megabytes in memory, either.
  uint32_t window_packets = 2048;
  // A long message asks for an ACK every this many packets.
  uint32_t ack_request_packets = 32;
};

// What a pass of the engine hands to every QP.
struct Transport {
  Wire& wire;
  const TransportTuning& tuning;
  uint64_t now_ns;   // the engine's time, which stands still while the engine cannot run
  uint64_t wall_ns;  // for timestamps and delays
};

// Requester of the reliable services.

// Sends up to about `budget_bytes`, and starts new WQEs as the doorbell allows. Returns whether
// anything was done.
bool requester_run(Qp& qp, const Transport& transport, uint32_t budget_bytes);
void requester_response(Qp& qp, const Packet& packet, const Transport& transport);
// Acts when the deadline has passed. Call it only when no packet waits to be received.
bool requester_timer(Qp& qp, const Transport& transport);
// The latest time at which requester_timer or requester_run has to be called; UINT64_MAX: never.
uint64_t requester_deadline_ns(const Qp& qp, const TransportTuning& tuning);

// Responder of the reliable services.

void responder_request(Qp& qp, const Packet& packet, const Transport& transport);
// Sends responses and the pending ACK or NAK. Returns whether anything was done.
bool responder_run(Qp& qp, const Transport& transport, uint32_t budget_bytes);
bool responder_idle(const Qp& qp);

// The services without acknowledgements: their requester, and the functions that execute an arrived
// packet.

bool unreliable_run(Qp& qp, const Transport& transport, uint32_t budget_bytes);
void uc_request(Qp& qp, const Packet& packet, const Transport& transport);
// Whether a datagram to this address is for the QP's NIC, given the kind of address that it names.
bool ud_addressed(const Qp& qp, const Packet& packet, uint32_t dst_ipv4_be);
void ud_datagram(Qp& qp, const Packet& packet, uint32_t src_ipv4_be, const Transport& transport);

// Errors.

// Completes the oldest WQE of a reliable QP with an error and moves the QP to ERR.
void qp_fail_send(Qp& qp, Syndrome syndrome, const Transport& transport);
// Moves the QP to ERR because the application demands it.
void qp_stop(Qp& qp);
// Moves the QP to ERR for a reason that has no WQE; `event` tells the host (0: no event).
// `syndrome` is that of the completion that reports the error, if there is one; it is for the
// records.
void qp_fail(Qp& qp, int event, Syndrome syndrome = kSyndromeNone);
// The receive that was taken cannot hold the message of an unreliable QP. Unlike a lost packet this
// is an error of the application.
void recv_fail(Qp& qp, Syndrome syndrome, const Transport& transport);
// Completes up to `max` WQEs of a QP in ERR with flush errors, including those posted later. In SQE
// only the send queue's WQEs are completed. Entries of a shared receive queue do not belong to the
// QP.
bool qp_flush(Qp& qp, const Transport& transport, uint32_t max);
void qp_event(Qp& qp, ibv_event_type type);

// Completes one send WQE that the ring still holds with a flush error. Returns false if none is
// left.
bool send_flush_one(Qp& qp, const Transport& transport);

// Completions.
void send_complete(Qp& qp, const SendEntry& entry, Syndrome syndrome, const Transport& transport);
void recv_complete(Qp& qp, Cqe cqe, const Transport& transport);

// Binds a memory window or ends its binding. Returns false if the request is not allowed.
bool window_update(Qp& qp, const SendWqe& wqe);

// Copies between a message and the memory of its parts. Returns false if a part is not accessible.
bool parts_read(const Qp& qp, const DataPart* parts, uint32_t count, uint64_t offset, uint32_t size,
                uint8_t* to);
bool parts_write(const Qp& qp, uint32_t pd, const DataPart* parts, uint32_t count, uint64_t offset,
                 const uint8_t* from, uint32_t size);
// Whether every part of the WQE is fully accessible.
bool parts_check(const Qp& qp, const DataPart* parts, uint32_t count, uint32_t access);
// Stores a packet's bytes in increasing order, so that the last byte becomes visible after the
// others: programs wait for it in memory.
void place(uint8_t* to, const uint8_t* from, size_t size);

}  // namespace cxemu

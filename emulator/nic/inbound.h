// What the receiving halves of all services share: receives from the queue pair's own ring or from
// a shared queue, the lengths a packet may have, and the memory that a request names.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nic/qp.h"

namespace cxemu {

// Takes the next receive into qp.responder.recv, if none is taken yet. False: none is posted.
bool recv_take(Qp& qp);
// Stores a part of the message in the receive that was taken. False: its memory is not accessible.
bool recv_write(const Qp& qp, uint64_t offset, const uint8_t* from, uint32_t size);

// Lengths that a packet of a SEND or WRITE may have (IBA 9.7.4.1.4, 9.8.2.2.1).
bool payload_length_ok(const Qp& qp, const Packet& packet);

// The protection domain whose memory a request may use: that of the queue pair, or of the shared
// queue that an XRC request names.
uint32_t request_pd(const Qp& qp);
// The memory that the request being executed may use so, or nullptr.
uint8_t* remote_find(const Qp& qp, uint32_t rkey, uint64_t address, uint64_t length,
                     uint32_t access);
// The same for a request of earlier.
uint8_t* remote_find_in(const Qp& qp, uint32_t pd, uint32_t rkey, uint64_t address, uint64_t length,
                        uint32_t access);

}  // namespace cxemu

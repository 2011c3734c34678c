// What the receiving halves of all services share: receives from the queue pair's own ring or from
// a shared queue, the lengths a packet may have, and the memory that a request names.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nic/qp.h"

namespace cxemu {

// Takes the next receive into qp.responder.recv, unless one is taken already. Returns false if none
// is posted.
bool recv_take(Qp& qp);
// Stores a part of the message in the receive that was taken. Returns false if its memory is not
// accessible.
bool recv_write(const Qp& qp, uint64_t offset, const uint8_t* from, uint32_t size);

// Checks the length of a packet of a SEND or WRITE (IBA 9.7.4.1.4, 9.8.2.2.1).
bool payload_length_ok(const Qp& qp, const Packet& packet);

// The protection domain whose memory a request may use: that of the queue pair, or that of the
// shared queue that an XRC request names.
uint32_t request_pd(const Qp& qp);
// The memory of the request being executed if it permits this access, or nullptr.
uint8_t* remote_find(const Qp& qp, uint32_t rkey, uint64_t address, uint64_t length,
                     uint32_t access);
// The same for an earlier request, whose domain was `pd`.
uint8_t* remote_find_in(const Qp& qp, uint32_t pd, uint32_t rkey, uint64_t address, uint64_t length,
                        uint32_t access);

}  // namespace cxemu

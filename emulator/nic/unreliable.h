// The services without acknowledgements, UC and UD: the interface between their common requester
// (unreliable.cc) and their separate parts (uc.cc, ud.cc).
#pragma once

#include <cstdint>

#include "nic/transport.h"

namespace cxemu {

// What happened to the next packet of the WQE being sent.
struct SentPacket {
  bool sent;  // if not, the way is full or there is an error
  bool last;  // of its message
  uint32_t bytes;
  Syndrome error = kSyndromeNone;
};

SentPacket uc_packet_send(Qp& qp, const Transport& transport);
SentPacket ud_packet_send(Qp& qp, const Transport& transport);

}  // namespace cxemu

// UDP sockets that send RoCEv2 packets whose every header field is known (see encapsulation.h).
// They are opened and closed by system calls of their own: the process's socket functions may be
// interposed, and its locks held across a fork.
#pragma once

#include <cstdint>

namespace cxemu {

// A socket that receives what comes for the NIC, with a large buffer. -1 and errno on failure,
// EADDRINUSE when another process receives for it.
int udp_receive_open(uint32_t ipv4_be);
// A socket that sends from a port; several processes may have the same. -1 on failure.
int udp_send_open(uint32_t ipv4_be, uint16_t port);
// Closes it if it is open.
void udp_close(int& fd);

// Bytes of unread packets that the kernel keeps for a receiving socket of this user, as packet_cost
// counts them.
uint32_t udp_receive_room();
// What a packet of this size occupies in there, at most.
uint32_t packet_cost(uint32_t size);

}  // namespace cxemu

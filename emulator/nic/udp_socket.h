// UDP sockets that send RoCEv2 packets whose header fields are all known (see encapsulation.h).
// They are opened and closed by direct system calls: the process's socket functions may be
// interposed, and their locks may be held across a fork.
#pragma once

#include <cstdint>

namespace cxemu {

// A socket that receives the NIC's packets, with a large buffer. Returns -1 and errno on failure,
// EADDRINUSE when another process receives for the NIC.
int udp_receive_open(uint32_t ipv4_be);
// A socket that sends from a port; several processes may use the same port. Returns -1 on failure.
int udp_send_open(uint32_t ipv4_be, uint16_t port);
// Closes the socket if it is open.
void udp_close(int& fd);

// How many bytes of unread packets the kernel keeps for a receiving socket of this user, counted as
// by packet_cost.
uint32_t udp_receive_room();
// The most that a packet of this size occupies there.
uint32_t packet_cost(uint32_t size);

}  // namespace cxemu

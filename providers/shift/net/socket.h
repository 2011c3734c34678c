// The system calls of the control network: TCP and UDP over NIC addresses, and local sockets
// between the processes of a host. All sockets are nonblocking and close-on-exec. All addresses are
// in network byte order, all ports in host byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "util/unique_fd.h"
#include "wire/messages.h"

namespace shift::net {

// "1.2.3.4" for log lines.
struct IpText {
  explicit IpText(uint32_t ip_be) noexcept;
  const char* c_str() const noexcept { return text; }
  char text[16];
};

// "fe80::1" for log lines.
struct GidText {
  explicit GidText(const wire::Gid& gid) noexcept;
  const char* c_str() const noexcept { return text; }
  char text[46];
};

// All functions that return a UniqueFd leave it empty and set errno when they fail.
UniqueFd tcp_listen(uint32_t ip_be, uint16_t port);
// Accepts one connection; errno is EAGAIN when none waits.
UniqueFd tcp_accept(int listen_fd, uint32_t& remote_ip_be);
// Starts to connect from `local_ip_be` (any port). Once the socket is writable, socket_error()
// gives the result.
UniqueFd tcp_connect(uint32_t local_ip_be, uint32_t remote_ip_be, uint16_t port);
// Lets data leave without delay, and bounds the time until the socket fails when its data is not
// acknowledged or the peer's host is silent.
void tcp_tune(int fd);
// Returns the pending error of a socket and clears it.
int socket_error(int fd);
// The addresses of a connected TCP socket.
bool tcp_addresses(int fd, uint32_t& local_ip_be, uint32_t& remote_ip_be);

// The UDP functions send datagrams to all hosts in a subnet, with one message in each datagram.
inline constexpr size_t kDatagramMax = 128;  // the longest one that is sent has 76 bytes
struct UdpPeer {
  uint32_t ip_be = 0;
  uint16_t port = 0;
};
// Makes a socket that receives what is sent to the broadcast address. Any number of sockets, in any
// processes of the host, may receive it.
UniqueFd udp_hear_all(uint32_t broadcast_be, uint16_t port);
// Makes a socket that sends from the local address and a free port, also to a broadcast address,
// and receives the answers to that port.
UniqueFd udp_speak_to_all(uint32_t local_ip_be);
bool udp_send(int fd, const wire::Message& message, const UdpPeer& to);
enum class UdpResult : uint8_t { kNothing, kMalformed, kMessage };
// The result is kNothing when no datagram waits.
UdpResult udp_receive(int fd, wire::Message& message, UdpPeer& from);

// Local sockets lie in the abstract namespace, so they leave no file to clean up. Each is named for
// a rendezvous port (Secrets::local_name()).
UniqueFd local_listen(const std::string& name);
UniqueFd local_connect(const std::string& name);
UniqueFd local_accept(int listen_fd);
// Whether the process at the other end runs as the same user as this process, or as root.
bool local_peer_trusted(int fd);
// The user whose process is at the other end, as this process sees users.
uint32_t local_peer_user(int fd);
// Sends one packet, with a descriptor when `passed_fd` is not negative.
bool local_send(int fd, std::span<const uint8_t> packet, int passed_fd = -1);
// Returns the size of the received packet, 0 at the end of the stream, or -1 with errno. A packet
// that does not fit counts as the end of the stream.
ssize_t local_receive(int fd, std::span<uint8_t> buffer, UniqueFd& passed);

// Sends all bytes at once or fails. It is for the first message on a fresh socket, which always
// fits.
bool send_whole(int fd, std::span<const uint8_t> bytes);

}  // namespace shift::net

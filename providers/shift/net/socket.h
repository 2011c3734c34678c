// The system calls behind the control network: TCP over NIC addresses, local sockets between the
// processes of a host. All sockets are nonblocking and close-on-exec. Addresses: network order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

// All return an empty UniqueFd with errno set when they fail.
UniqueFd tcp_listen(uint32_t ip_be, uint16_t port);
// Accepts one connection; errno EAGAIN when none waits.
UniqueFd tcp_accept(int listen_fd, uint32_t& remote_ip_be);
// Starts to connect from `local_ip_be` (any port); the result shows in socket_error() once the
// socket is writable.
UniqueFd tcp_connect(uint32_t local_ip_be, uint32_t remote_ip_be, uint16_t port);
// No delay, and a bound on how long unacknowledged data or silence goes unnoticed.
void tcp_tune(int fd);
// Takes the pending error of a socket.
int socket_error(int fd);
// The addresses of a connected TCP socket.
bool tcp_addresses(int fd, uint32_t& local_ip_be, uint32_t& remote_ip_be);

// Datagrams to everybody in a subnet, one message in each.
struct UdpPeer {
  uint32_t ip_be = 0;
  uint16_t port = 0;
};
// Hears what is sent to the broadcast address. Any number of sockets, of all processes, may.
UniqueFd udp_hear_all(uint32_t broadcast_be, uint16_t port);
// Sends from the local address, any port, also to a broadcast address; hears answers to that port.
UniqueFd udp_speak_to_all(uint32_t local_ip_be);
bool udp_send(int fd, const wire::Message& message, const UdpPeer& to);
enum class UdpResult : uint8_t { kNothing, kMalformed, kMessage };
// kNothing: none is waiting.
UdpResult udp_receive(int fd, wire::Message& message, UdpPeer& from);

// Sockets in the abstract namespace (no file to clean up), named for a rendezvous port.
UniqueFd local_listen(uint32_t ip_be, uint16_t port);
UniqueFd local_connect(uint32_t ip_be, uint16_t port);
UniqueFd local_accept(int listen_fd);
// The process at the other end runs as the same user, or as root.
bool local_peer_trusted(int fd);
// One packet, with a descriptor when `passed_fd` is not negative.
bool local_send(int fd, std::span<const uint8_t> packet, int passed_fd = -1);
// Size of the received packet; 0 at the end of the stream, -1 with errno. Oversized packets count
// as the end of the stream.
ssize_t local_receive(int fd, std::span<uint8_t> buffer, UniqueFd& passed);

// Sends all of it at once or fails: for the first message on a fresh socket, which always fits.
bool send_whole(int fd, std::span<const uint8_t> bytes);

}  // namespace shift::net

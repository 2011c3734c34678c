// UDP sockets for RoCEv2.
#include "nic/udp_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "nic/encapsulation.h"

namespace cxemu {

namespace {

constexpr int kReceiveBuffer = 16 << 20;
constexpr int kSendBuffer = 4 << 20;

int socket_open() {
  return static_cast<int>(
      syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

int open_bound(uint32_t ipv4_be, uint16_t port, bool shared) {
  const int fd = socket_open();
  if (fd < 0) return -1;
  const int on = 1;
  if (shared) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = ipv4_be;
  own.sin_port = htons(port);
  if (syscall(SYS_bind, fd, &own, sizeof own) == 0) return fd;
  const int error = errno;
  syscall(SYS_close, fd);
  errno = error;
  return -1;
}

// Sets the size as far as this user's limits allow.
void buffer_set(int fd, int option, int force_option, int size) {
  if (setsockopt(fd, SOL_SOCKET, force_option, &size, sizeof size) != 0) {
    setsockopt(fd, SOL_SOCKET, option, &size, sizeof size);
  }
}

}  // namespace

int udp_receive_open(uint32_t ipv4_be) {
  const int fd = open_bound(ipv4_be, kRocePort, false);
  if (fd >= 0) buffer_set(fd, SO_RCVBUF, SO_RCVBUFFORCE, kReceiveBuffer);
  return fd;
}

int udp_send_open(uint32_t ipv4_be, uint16_t port) {
  const int fd = open_bound(ipv4_be, port, true);
  if (fd < 0) return -1;
  buffer_set(fd, SO_SNDBUF, SO_SNDBUFFORCE, kSendBuffer);
  // The socket is not connected and never fragments: only then does the kernel leave the
  // identification, which the ICRC covers, at 0. A connected socket counts it up from a random
  // start.
  const int discover = IP_PMTUDISC_DO;
  const int on = 1;
  if (setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover) == 0 &&
      setsockopt(fd, SOL_SOCKET, SO_NO_CHECK, &on, sizeof on) == 0) {
    return fd;
  }
  syscall(SYS_close, fd);
  return -1;
}

void udp_close(int& fd) {
  if (fd >= 0) syscall(SYS_close, fd);
  fd = -1;
}

uint32_t udp_receive_room() {
  int fd = socket_open();
  if (fd < 0) return 0;
  buffer_set(fd, SO_RCVBUF, SO_RCVBUFFORCE, kReceiveBuffer);
  int size = 0;
  socklen_t length = sizeof size;
  if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, &length) != 0 || size < 0) size = 0;
  udp_close(fd);
  // The kernel uses up to a quarter for packets that were already read.
  return static_cast<uint32_t>(size) / 4 * 3;
}

uint32_t packet_cost(uint32_t size) {
  // The kernel's buffers grow by powers of two; headers and descriptors are added.
  constexpr uint32_t kFront = 512, kDescriptor = 512;
  return std::bit_ceil(size + kFront) + kDescriptor;
}

}  // namespace cxemu

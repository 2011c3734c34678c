// The system calls of the control network.
#include "net/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace shift::net {
namespace {

// In a flood the kernel drops what does not fit, and the honest end tries again after a second.
// What waits costs this process no descriptor.
constexpr int kBacklog = 1024;
constexpr unsigned kUserTimeoutMs = 5000;
constexpr int kKeepIdleS = 5;
constexpr int kKeepIntervalS = 2;
constexpr int kKeepProbes = 3;

struct sockaddr_in ipv4(uint32_t ip_be, uint16_t port) {
  struct sockaddr_in a = {};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = ip_be;
  a.sin_port = htons(port);
  return a;
}

template <typename T>
const struct sockaddr* generic(const T& address) {
  return reinterpret_cast<const struct sockaddr*>(&address);
}

void set_option(int fd, int level, int option, int value) {
  // An old kernel may refuse an option. The process then notices a lost peer later, or gets an
  // error from a later call on the socket.
  (void)setsockopt(fd, level, option, &value, sizeof value);
}

struct LocalAddress {
  struct sockaddr_un address = {};
  socklen_t size = 0;
};

LocalAddress local_address(const std::string& name) {
  LocalAddress a;
  a.address.sun_family = AF_UNIX;
  // A leading zero byte stands for the abstract namespace.
  const int n = snprintf(a.address.sun_path + 1, sizeof a.address.sun_path - 1,
                         "shift-rendezvous/%s", name.c_str());
  a.size = static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + 1 + n);
  return a;
}

UniqueFd local_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

IpText::IpText(uint32_t ip_be) noexcept {
  unsigned char b[4];
  std::memcpy(b, &ip_be, sizeof b);
  snprintf(text, sizeof text, "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
}

GidText::GidText(const wire::Gid& gid) noexcept {
  if (inet_ntop(AF_INET6, gid.raw.data(), text, sizeof text) == nullptr) text[0] = '\0';
}

UniqueFd tcp_listen(uint32_t ip_be, uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // A NIC's address may come and go with its link, but the listener stays.
  set_option(fd.get(), IPPROTO_IP, IP_FREEBIND, 1);
  const auto address = ipv4(ip_be, port);
  if (::bind(fd.get(), generic(address), sizeof address) != 0 || ::listen(fd.get(), kBacklog) != 0)
    fd.reset();
  return fd;
}

UniqueFd tcp_accept(int listen_fd, uint32_t& remote_ip_be) {
  struct sockaddr_in from = {};
  socklen_t size = sizeof from;
  UniqueFd fd(::accept4(listen_fd, reinterpret_cast<struct sockaddr*>(&from), &size,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) tcp_tune(fd.get());
  remote_ip_be = from.sin_addr.s_addr;
  return fd;
}

UniqueFd tcp_connect(uint32_t local_ip_be, uint32_t remote_ip_be, uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  tcp_tune(fd.get());
  // The kernel chooses the port at connect(), so that it must be free towards this peer only.
  set_option(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  const auto local = ipv4(local_ip_be, 0), remote = ipv4(remote_ip_be, port);
  if (::bind(fd.get(), generic(local), sizeof local) != 0 ||
      (::connect(fd.get(), generic(remote), sizeof remote) != 0 && errno != EINPROGRESS &&
       errno != EINTR))
    fd.reset();
  return fd;
}

void tcp_tune(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kUserTimeoutMs));
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
}

int socket_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool tcp_addresses(int fd, uint32_t& local_ip_be, uint32_t& remote_ip_be) {
  struct sockaddr_in local = {}, remote = {};
  socklen_t local_size = sizeof local, remote_size = sizeof remote;
  if (getsockname(fd, reinterpret_cast<struct sockaddr*>(&local), &local_size) != 0 ||
      getpeername(fd, reinterpret_cast<struct sockaddr*>(&remote), &remote_size) != 0 ||
      local.sin_family != AF_INET || remote.sin_family != AF_INET)
    return false;
  local_ip_be = local.sin_addr.s_addr;
  remote_ip_be = remote.sin_addr.s_addr;
  return true;
}

UniqueFd udp_hear_all(uint32_t broadcast_be, uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  set_option(fd.get(), IPPROTO_IP, IP_FREEBIND, 1);  // for the reason given in tcp_listen()
  const auto address = ipv4(broadcast_be, port);
  if (::bind(fd.get(), generic(address), sizeof address) != 0) fd.reset();
  return fd;
}

UniqueFd udp_speak_to_all(uint32_t local_ip_be) {
  UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  set_option(fd.get(), SOL_SOCKET, SO_BROADCAST, 1);
  const auto local = ipv4(local_ip_be, 0);
  if (::bind(fd.get(), generic(local), sizeof local) != 0) fd.reset();
  return fd;
}

bool udp_send(int fd, const wire::Message& message, const UdpPeer& to) {
  std::vector<uint8_t> bytes;
  const auto address = ipv4(to.ip_be, to.port);
  return wire::encode(message, bytes) &&
         ::sendto(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT, generic(address),
                  sizeof address) == static_cast<ssize_t>(bytes.size());
}

UdpResult udp_receive(int fd, wire::Message& message, UdpPeer& from) {
  uint8_t bytes[kDatagramMax];
  struct sockaddr_in address = {};
  socklen_t size = sizeof address;
  const ssize_t n = ::recvfrom(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_TRUNC,
                               reinterpret_cast<struct sockaddr*>(&address), &size);
  // ECONNREFUSED is about an earlier datagram that this socket sent to a port without a listener,
  // so further datagrams may wait.
  if (n < 0) return errno == ECONNREFUSED ? UdpResult::kMalformed : UdpResult::kNothing;
  from = {address.sin_addr.s_addr, ntohs(address.sin_port)};
  // With MSG_TRUNC, `n` is the size of the whole datagram, even when it did not fit.
  if (static_cast<size_t>(n) > sizeof bytes) return UdpResult::kMalformed;
  return wire::decode({bytes, static_cast<size_t>(n)}, message) ? UdpResult::kMessage
                                                                : UdpResult::kMalformed;
}

UniqueFd local_listen(const std::string& name) {
  UniqueFd fd = local_socket();
  const LocalAddress a = local_address(name);
  if (fd &&
      (::bind(fd.get(), generic(a.address), a.size) != 0 || ::listen(fd.get(), kBacklog) != 0))
    fd.reset();
  return fd;
}

UniqueFd local_connect(const std::string& name) {
  UniqueFd fd = local_socket();
  const LocalAddress a = local_address(name);
  if (fd && ::connect(fd.get(), generic(a.address), a.size) != 0) fd.reset();
  return fd;
}

UniqueFd local_accept(int listen_fd) {
  return UniqueFd(::accept4(listen_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

bool local_peer_trusted(int fd) {
  struct ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

uint32_t local_peer_user(int fd) {
  struct ucred peer = {};
  socklen_t size = sizeof peer;
  (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer.uid;
}

bool local_send(int fd, std::span<const uint8_t> packet, int passed_fd) {
  struct iovec part = {const_cast<uint8_t*>(packet.data()), packet.size()};
  struct msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &passed_fd, sizeof passed_fd);
  }
  return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(packet.size());
}

ssize_t local_receive(int fd, std::span<uint8_t> buffer, UniqueFd& passed) {
  struct iovec part = {buffer.data(), buffer.size()};
  struct msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  // There is room for one descriptor only; the kernel closes any others.
  for (struct cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS ||
        c->cmsg_len < CMSG_LEN(sizeof(int)))
      continue;
    int received;
    std::memcpy(&received, CMSG_DATA(c), sizeof received);
    passed = UniqueFd(received);
  }
  return (message.msg_flags & MSG_TRUNC) != 0 ? 0 : n;
}

bool send_whole(int fd, std::span<const uint8_t> bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace shift::net

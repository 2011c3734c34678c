// Carrier over abstract unix sockets.
#include "nic/unix_carrier.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "fabric/fabric.h"
#include "nic/clock.h"
#include "nic/roce.h"

namespace cxemu {

namespace {

struct FrameHeader {
  uint32_t size_flags;  // size of the packet that follows, and kCorrupt
  uint32_t src_ipv4_be, dst_ipv4_be;
};

// Stands for a wrong ICRC: this carrier's packets have none.
constexpr uint32_t kCorrupt = 1u << 31;

constexpr size_t kDatagram = 64 << 10;
static_assert(kDatagram > 2 * (kMaxPacket + sizeof(FrameHeader)));
// Room for a few datagrams, so that both ends can work at the same time, but not so much that a
// burst stays in flight for long.
constexpr int kSocketBuffer = 2 << 20;
constexpr uint64_t kReconnectNs = 1'000'000;
constexpr int kEventsMax = 32;

// Includes the padding after a packet that keeps every header aligned.
size_t frame_size(size_t packet_size) {
  return (sizeof(FrameHeader) + packet_size + 3) & ~size_t{3};
}

socklen_t socket_name(uint32_t net, int slot, sockaddr_un* name) {
  memset(name, 0, sizeof *name);
  name->sun_family = AF_UNIX;
  const int length =
      snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "cxemu-%u-%d", net, slot);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

void buffer_size_set(int fd, int option, int force_option) {
  if (setsockopt(fd, SOL_SOCKET, force_option, &kSocketBuffer, sizeof kSocketBuffer) != 0) {
    setsockopt(fd, SOL_SOCKET, option, &kSocketBuffer, sizeof kSocketBuffer);
  }
}

// The content is checked and not trusted: it comes from another process.
void datagram_deliver(const uint8_t* data, size_t size, FrameSink& sink) {
  size_t at = 0;
  while (size - at >= sizeof(FrameHeader)) {
    FrameHeader header;
    memcpy(&header, data + at, sizeof header);
    const uint32_t packet_size = header.size_flags & ~kCorrupt;
    if (packet_size > size - at - sizeof header) return;
    sink.frame_arrived(header.src_ipv4_be, header.dst_ipv4_be, data + at + sizeof header,
                       packet_size, (header.size_flags & kCorrupt) != 0);
    at = std::min(size, at + frame_size(packet_size));
  }
}

}  // namespace

std::unique_ptr<UnixCarrier> UnixCarrier::open(uint32_t net, int slot) {
  std::unique_ptr<UnixCarrier> carrier(new UnixCarrier(net, slot));
  if (!carrier->listen()) return nullptr;
  return carrier;
}

bool UnixCarrier::listen() {
  peers_.resize(kMaxProcesses + 1);
  receive_buffer_ = std::make_unique_for_overwrite<uint8_t[]>(kDatagram);
  loopback_buffer_ = std::make_unique_for_overwrite<uint8_t[]>(kDatagram);
  listen_fd_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listen_fd_ < 0) return false;
  sockaddr_un name;
  const socklen_t length = socket_name(net_, slot_, &name);
  if (bind(listen_fd_, reinterpret_cast<sockaddr*>(&name), length) != 0) return false;
  if (::listen(listen_fd_, kMaxProcesses) != 0) return false;
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return false;
  epoll_event event = {.events = EPOLLIN, .data = {.fd = listen_fd_}};
  return epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, listen_fd_, &event) == 0;
}

UnixCarrier::~UnixCarrier() {
  abandon();
}

void UnixCarrier::abandon() {
  // Calls the kernel directly: this also runs in a forked child, where an interposed close() may
  // find its own lock held.
  const auto close_fd = [](int& fd) {
    if (fd >= 0) syscall(SYS_close, fd);
    fd = -1;
  };
  for (Peer& peer : peers_) {
    close_fd(peer.fd);
    peer.used = 0;
  }
  for (int& fd : incoming_) close_fd(fd);
  incoming_.clear();
  dirty_.clear();
  close_fd(epoll_fd_);
  close_fd(listen_fd_);
}

bool UnixCarrier::connect(int slot, Peer& peer) {
  const uint64_t now = MonotonicClock().now_ns();
  if (now < peer.retry_ns) return false;
  peer.retry_ns = now + kReconnectNs;
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  buffer_size_set(fd, SO_SNDBUF, SO_SNDBUFFORCE);
  sockaddr_un name;
  const socklen_t length = socket_name(net_, slot, &name);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&name), length) != 0) {
    syscall(SYS_close, fd);
    return false;
  }
  peer.fd = fd;
  return true;
}

// Sends the gathered bytes. Returns false when they have to wait.
bool UnixCarrier::peer_send(int slot, Peer& peer) {
  if (peer.fd < 0 && !connect(slot, peer)) {
    peer.used = 0;  // no such process: packets vanish, as on an unconnected wire
    return true;
  }
  const ssize_t sent = ::send(peer.fd, peer.buffer.get(), peer.used, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR)) return false;
  if (sent < 0) {
    syscall(SYS_close, peer.fd);
    peer.fd = -1;
  }
  peer.used = 0;
  return true;
}

uint8_t* UnixCarrier::reserve(int slot, size_t size) {
  static uint8_t nowhere[kMaxPacket];
  reserved_slot_ = -1;
  if (slot <= 0 || slot > kMaxProcesses) return nowhere;
  Peer& peer = peers_[static_cast<size_t>(slot)];
  if (!peer.buffer) peer.buffer = std::make_unique_for_overwrite<uint8_t[]>(kDatagram);
  if (peer.used + frame_size(size) > kDatagram) {
    if (slot == slot_ || !peer_send(slot, peer)) return nullptr;
  }
  reserved_slot_ = slot;
  return peer.buffer.get() + peer.used + sizeof(FrameHeader);
}

void UnixCarrier::commit(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, size_t size, bool corrupt) {
  if (reserved_slot_ < 0) return;
  Peer& peer = peers_[static_cast<size_t>(reserved_slot_)];
  const FrameHeader header = {static_cast<uint32_t>(size) | (corrupt ? kCorrupt : 0), src_ipv4_be,
                              dst_ipv4_be};
  memcpy(peer.buffer.get() + peer.used, &header, sizeof header);
  peer.used += static_cast<uint32_t>(frame_size(size));
  if (!peer.waiting) {
    peer.waiting = true;
    dirty_.push_back(reserved_slot_);
  }
  reserved_slot_ = -1;
}

bool UnixCarrier::flush() {
  size_t kept = 0;
  for (const int slot : dirty_) {
    Peer& peer = peers_[static_cast<size_t>(slot)];
    const bool wait = peer.used > 0 && (slot == slot_ || !peer_send(slot, peer));
    peer.waiting = wait;
    if (wait) dirty_[kept++] = slot;
  }
  dirty_.resize(kept);
  return kept > 0;
}

bool UnixCarrier::loopback_deliver(FrameSink& sink) {
  Peer& own = peers_[static_cast<size_t>(slot_)];
  if (own.used == 0) return false;
  // The buffers are swapped first: handling a packet may send another one to the own process.
  std::swap(own.buffer, loopback_buffer_);
  const size_t size = own.used;
  own.used = 0;
  datagram_deliver(loopback_buffer_.get(), size, sink);
  return true;
}

void UnixCarrier::connection_accept() {
  const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    syscall(SYS_close, fd);
    return;
  }
  incoming_.push_back(fd);
}

bool UnixCarrier::connection_receive(int fd, FrameSink& sink, size_t max_bytes) {
  size_t total = 0;
  while (total < max_bytes) {
    const ssize_t size = recv(fd, receive_buffer_.get(), kDatagram, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (size <= 0) {
      // Closed; epoll forgets the connection with its descriptor.
      syscall(SYS_close, fd);
      std::erase(incoming_, fd);
      return true;
    }
    total += static_cast<size_t>(size);
    datagram_deliver(receive_buffer_.get(), static_cast<size_t>(size), sink);
  }
  return false;
}

Carrier::Received UnixCarrier::receive(FrameSink& sink, size_t max_bytes) {
  const bool looped = loopback_deliver(sink);
  epoll_event events[kEventsMax];
  const int count = epoll_wait(epoll_fd_, events, kEventsMax, 0);
  Received result = {.any = looped || count > 0, .drained = count < kEventsMax};
  for (int i = 0; i < count; i++) {
    if (events[i].data.fd == listen_fd_) {
      connection_accept();
      result.drained = false;  // the new connection has data
    } else {
      const size_t share = max_bytes / static_cast<size_t>(count) + 1;
      result.drained &= connection_receive(events[i].data.fd, sink, share);
    }
  }
  return result;
}

}  // namespace cxemu

// Carrier over RoCEv2.
#include "nic/udp_carrier.h"

#include <endian.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "nic/clock.h"
#include "nic/planted.h"
#include "nic/roce.h"
#include "nic/udp_socket.h"

namespace cxemu {

namespace {

constexpr uint64_t kTakeNs = 2'000'000;  // between attempts to take a port over
// A receiver that took nothing for so long will take nothing any more, or the packets to it were
// lost. A receiver that waits for a core looks the same; if it is then sent more, it loses more.
constexpr uint64_t kPauseMaxNs = 100'000'000;

// The process that has the queue pair.
int packet_slot(const uint8_t* packet) {
  return packet[5];
}

}  // namespace

UdpCarrier::Batch::Batch()
    : bytes(std::make_unique_for_overwrite<uint8_t[]>(kBatch * kPacketRoom)) {
  for (uint32_t i = 0; i < kBatch; i++) {
    vector[i] = {buffer(i), kPacketRoom};
    message[i] = {};
    message[i].msg_hdr.msg_name = &address[i];
    message[i].msg_hdr.msg_namelen = sizeof address[i];
    message[i].msg_hdr.msg_iov = &vector[i];
    message[i].msg_hdr.msg_iovlen = 1;
    address[i] = {};
    address[i].sin_family = AF_INET;
    address[i].sin_port = htobe16(kRocePort);
  }
}

UdpCarrier::UdpCarrier(FabricFile& fabric, int slot)
    : fabric_(fabric), slot_(slot), pauses_(kMaxProcesses + 1) {}

std::unique_ptr<UdpCarrier> UdpCarrier::open(FabricFile& fabric, int slot) {
  std::unique_ptr<UdpCarrier> carrier(new UdpCarrier(fabric, slot));
  if (!carrier->start()) return nullptr;
  return carrier;
}

bool UdpCarrier::start() {
  unix_ = UnixCarrier::open(fabric_.net, slot_);
  if (!unix_) return false;
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return false;
  epoll_event event = {.events = EPOLLIN, .data = {.u32 = 0}};
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, unix_->wait_fd(), &event) != 0) return false;
  FabricProcess& own = fabric_.process[slot_];
  own.wire_taken.store(own.wire_sent.load(std::memory_order_relaxed), std::memory_order_relaxed);
  // Half of the room, because other processes may share the NIC.
  own.wire_room.store(udp_receive_room() / 2, std::memory_order_relaxed);
  return true;
}

UdpCarrier::~UdpCarrier() {
  abandon();
}

void UdpCarrier::abandon() {
  for (Port& port : ports_) port_close(port);
  ports_.clear();
  out_first_ = out_end_ = 0;
  udp_close(epoll_fd_);
  if (unix_) unix_->abandon();
}

// ---- NICs

UdpCarrier::Port* UdpCarrier::port_find(uint32_t ipv4_be) {
  for (Port& port : ports_) {
    if (port.ipv4_be == ipv4_be) return &port;
  }
  return nullptr;
}

void UdpCarrier::address_open(uint32_t ipv4_be) {
  Port* port = port_find(ipv4_be);
  if (port == nullptr) {
    port = &ports_.emplace_back();
    port->ipv4_be = ipv4_be;
    port->users = 0;
    port->receive_fd = -1;
    port->send_fd.fill(-1);
    port_take(*port);
  }
  port->users++;
}

void UdpCarrier::address_close(uint32_t ipv4_be) {
  Port* port = port_find(ipv4_be);
  if (port == nullptr || --port->users > 0) return;
  batch_send();
  port_close(*port);
  // The unsent packets used this port's sockets.
  out_first_ = out_end_ = 0;
  ports_.erase(ports_.begin() + (port - ports_.data()));
}

void UdpCarrier::port_take(Port& port) {
  port.receive_fd = udp_receive_open(port.ipv4_be);
  if (port.receive_fd < 0) return;
  epoll_event event = {.events = EPOLLIN, .data = {.u32 = port.ipv4_be}};
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, port.receive_fd, &event) != 0) {
    udp_close(port.receive_fd);
    return;
  }
  // What the port's last owner left unread is lost, so its senders must not wait for it.
  const uint32_t host = fabric_.process[slot_].host.load(std::memory_order_relaxed);
  for (FabricProcess& process : fabric_.process) {
    if (process.host.load(std::memory_order_relaxed) != host) continue;
    process.wire_taken.store(process.wire_sent.load(std::memory_order_relaxed),
                             std::memory_order_relaxed);
  }
}

void UdpCarrier::port_close(Port& port) {
  udp_close(port.receive_fd);
  for (int& fd : port.send_fd) udp_close(fd);
}

int UdpCarrier::sender(Port& port, Flow* flow, const uint8_t* packet) {
  const uint32_t index = flow_index(flow->src_ipv4_be, flow->dst_ipv4_be, packet);
  int& fd = port.send_fd[index];
  if (fd < 0) {
    // If another program has the port, try the next ones.
    constexpr uint16_t kAttempts = 16;
    for (uint16_t i = 0; fd < 0 && i < kAttempts; i++) {
      port.send_port[index] = static_cast<uint16_t>(flow_port(index) + i);
      fd = udp_send_open(port.ipv4_be, port.send_port[index]);
    }
  }
  flow->src_port = port.send_port[index];
  return fd;
}

// ---- Out

bool UdpCarrier::paused(int slot) {
  FabricProcess& process = fabric_.process[slot];
  const uint64_t sent = process.wire_sent.load(std::memory_order_relaxed);
  const uint64_t taken = process.wire_taken.load(std::memory_order_relaxed);
  Pause& pause = pauses_[static_cast<size_t>(slot)];
  const uint32_t room = process.wire_room.load(std::memory_order_relaxed);
  if (static_cast<int64_t>(sent - taken) < int64_t{room} || room == 0) {
    pause.since_ns = 0;
    return false;
  }
  const uint64_t now = MonotonicClock().now_ns();
  if (pause.since_ns == 0 || pause.taken != taken) {
    pause = {taken, now};
    return true;
  }
  if (now - pause.since_ns < kPauseMaxNs) return true;
  process.wire_taken.store(sent, std::memory_order_relaxed);
  pause.since_ns = 0;
  return false;
}

uint8_t* UdpCarrier::reserve(int slot, size_t size) {
  static uint8_t nowhere[kMaxPacket];
  reserved_ = Reserved::kNothing;
  if (slot <= 0 || slot > kMaxProcesses) return nowhere;
  if (slot == slot_) {
    uint8_t* out = unix_->reserve(slot, size);
    if (out != nullptr) reserved_ = Reserved::kLoop;
    return out;
  }
  if (paused(slot) || (out_end_ == kBatch && !batch_send())) {
    refused_ = true;
    return nullptr;
  }
  reserved_ = Reserved::kPacket;
  reserved_slot_ = slot;
  return out_.buffer(out_end_);
}

void UdpCarrier::commit(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, size_t size, bool corrupt) {
  if (reserved_ == Reserved::kLoop) {
    unix_->commit(src_ipv4_be, dst_ipv4_be, size, corrupt);
    looped_ = true;
  }
  if (reserved_ != Reserved::kPacket) return;
  reserved_ = Reserved::kNothing;
  Port* port = port_find(src_ipv4_be);
  if (port == nullptr) return;  // a fault of a NIC that was closed meanwhile held the packet back
  uint8_t* packet = out_.buffer(out_end_);
  Flow flow = {src_ipv4_be, dst_ipv4_be, 0};
  const int fd = sender(*port, &flow, packet);
  if (fd < 0) return;
  const uint32_t icrc = icrc_compute(flow, packet, size);
  const uint32_t sent = corrupt ? icrc_spoil(icrc) : icrc;
  memcpy(packet + size, &sent, sizeof sent);
  out_.vector[out_end_].iov_len = size + kIcrcSize;
  out_.address[out_end_].sin_addr.s_addr = dst_ipv4_be;
  out_fd_[out_end_++] = fd;
  fabric_.process[reserved_slot_].wire_sent.fetch_add(packet_cost(static_cast<uint32_t>(size)),
                                                      std::memory_order_relaxed);
}

bool UdpCarrier::batch_send() {
  while (out_first_ < out_end_) {
    const int fd = out_fd_[out_first_];
    uint32_t end = out_first_ + 1;
    while (end < out_end_ && out_fd_[end] == fd) end++;
    const int sent =
        sendmmsg(fd, &out_.message[out_first_], end - out_first_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == EINTR)) return false;
    // Any other error concerns the first packet alone, which vanishes.
    out_first_ += sent > 0 ? static_cast<uint32_t>(sent) : 1;
  }
  out_first_ = out_end_ = 0;
  return true;
}

bool UdpCarrier::flush() {
  const bool all_sent = batch_send();
  const bool waiting = unix_->flush() || !all_sent || refused_;
  refused_ = false;
  return waiting;
}

// ---- In

void UdpCarrier::hand_on(int slot, uint32_t src_ipv4_be, uint32_t dst_ipv4_be,
                         const uint8_t* packet, size_t size) {
  uint8_t* out = unix_->reserve(slot, size);
  if (out == nullptr) return;  // the process does not keep up: the packet is lost, as in a switch
  memcpy(out, packet, size);
  unix_->commit(src_ipv4_be, dst_ipv4_be, size, false);
}

void UdpCarrier::packet_receive(const Port& port, uint32_t index, FrameSink& sink) {
  const mmsghdr& message = in_.message[index];
  if (message.msg_len < kBthSize + kIcrcSize || (message.msg_hdr.msg_flags & MSG_TRUNC) != 0) {
    return;
  }
  const uint8_t* packet = in_.buffer(index);
  const size_t size = message.msg_len - kIcrcSize;
  const sockaddr_in& from = in_.address[index];
  const Flow flow = {from.sin_addr.s_addr, port.ipv4_be, be16toh(from.sin_port)};
  uint32_t icrc;
  memcpy(&icrc, packet + size, sizeof icrc);
  const bool corrupt = icrc != icrc_compute(flow, packet, size) && !CXEMU_PLANT(icrc_unchecked);
  const int slot = packet_slot(packet);
  fabric_.process[slot].wire_taken.fetch_add(packet_cost(static_cast<uint32_t>(size)),
                                             std::memory_order_relaxed);
  if (corrupt || slot == slot_) {
    sink.frame_arrived(flow.src_ipv4_be, flow.dst_ipv4_be, packet, size, corrupt);
  } else {
    hand_on(slot, flow.src_ipv4_be, flow.dst_ipv4_be, packet, size);
  }
}

// Returns false when more packets may be left.
bool UdpCarrier::port_receive(Port& port, FrameSink& sink, size_t max_bytes) {
  for (size_t total = 0; total < max_bytes;) {
    const int count = recvmmsg(port.receive_fd, in_.message.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (count <= 0) return true;
    for (uint32_t i = 0; i < static_cast<uint32_t>(count); i++) {
      total += in_.message[i].msg_len;
      packet_receive(port, i, sink);
    }
    if (count < static_cast<int>(kBatch)) return true;
  }
  return false;
}

Carrier::Received UdpCarrier::receive(FrameSink& sink, size_t max_bytes) {
  Received result = {.any = false, .drained = true};
  const auto from_unix = [&] {
    const Received received = unix_->receive(sink, max_bytes);
    result.any |= received.any;
    result.drained &= received.drained;
  };
  if (looped_) {
    looped_ = false;
    from_unix();
  }
  epoll_event events[kMaxNicsPerHost + 1];
  const int count = epoll_wait(epoll_fd_, events, kMaxNicsPerHost + 1, 0);
  for (int i = 0; i < count; i++) {
    result.any = true;
    Port* port = port_find(events[i].data.u32);
    if (port == nullptr) {
      from_unix();
    } else {
      result.drained &= port_receive(*port, sink, max_bytes / static_cast<size_t>(count) + 1);
    }
  }
  const auto lacks = [](const Port& port) { return port.receive_fd < 0; };
  if (std::any_of(ports_.begin(), ports_.end(), lacks)) {
    const uint64_t now = MonotonicClock().now_ns();
    if (now - take_ns_ > kTakeNs) {
      take_ns_ = now;
      for (Port& port : ports_) {
        if (lacks(port)) port_take(port);
      }
    }
  }
  return result;
}

}  // namespace cxemu

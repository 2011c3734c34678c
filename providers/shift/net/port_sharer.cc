// What a port sharer does.
#include "net/port_sharer.h"

#include <array>
#include <cerrno>

#include "net/handshake.h"
#include "net/local_packet.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

PortSharer::~PortSharer() {
  if (owner_) reactor_.remove_fd(owner_.get());
}

bool PortSharer::start(std::function<void()> lost) {
  LocalPacket packet;
  packet.kind = LocalKind::kRegister;
  packet.hello.instance = host_.own_instance();
  std::vector<uint8_t> bytes;
  if (!local_encode(packet, bytes) || !local_send(owner_.get(), bytes)) return false;
  lost_ = std::move(lost);
  return reactor_.add_fd(owner_.get(), EPOLLIN, [this](uint32_t) { on_readable(); });
}

void PortSharer::on_readable() {
  // The number of packets in one turn is bounded; those that are left wake the loop again.
  for (int i = 0; i < 16; i++)
    if (!receive_one()) break;
  if (owner_) return;
  const auto lost = std::move(lost_);
  lost();  // may destroy this
}

// Returns false when no packet waits, or when the owner is gone.
bool PortSharer::receive_one() {
  std::array<uint8_t, kLocalPacketMax> buffer;
  UniqueFd passed;
  const ssize_t n = local_receive(owner_.get(), buffer, passed);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  LocalPacket packet;
  if (n <= 0 || !local_decode({buffer.data(), static_cast<size_t>(n)}, packet)) {
    reactor_.remove_fd(owner_.get());
    owner_.reset();
    return false;
  }
  if (packet.kind == LocalKind::kPass && passed) {
    inbound_take(host_, std::move(passed), packet.hello);
  } else if (packet.kind == LocalKind::kAsk) {
    packet.kind = LocalKind::kAnswer;
    packet.yes = host_.expects(packet.hello);
    std::vector<uint8_t> bytes;
    // An owner that takes no answer is at its end, so a failure does not matter: the question times
    // out.
    if (local_encode(packet, bytes)) (void)local_send(owner_.get(), bytes);
  }
  return true;
}

void inbound_take(RendezvousHost& host, UniqueFd fd, const wire::Hello& hello) {
  const wire::Instance& self = host.own_instance();
  uint32_t local_ip_be = 0, remote_ip_be = 0;
  if (!tcp_addresses(fd.get(), local_ip_be, remote_ip_be) || hello.instance.is_zero()) return;
  // A further connection of a channel names no QP. Its proof is that it knows this process's
  // instance, which only peers are told: those that come from the address of a peer's QP.
  const bool welcome =
      hello.target.is_zero()
          ? host.expects(hello) && host.is_at(hello.from.gid, local_ip_be, remote_ip_be)
          : hello.target == self;
  const auto status = welcome ? wire::HelloStatus::kOk : wire::HelloStatus::kNoSuchQp;
  if (!hello_answer(fd.get(), hello, self, status) || !welcome) return;
  host.on_inbound(std::move(fd), hello, local_ip_be, remote_ip_be);
}

}  // namespace shift::net

// Rendezvous over TCP: which addresses are served, which dials run.
#include "control/tcp_rendezvous.h"

namespace shift::control {

namespace {
constexpr std::chrono::milliseconds kDialTimeout{3000};
}

void TcpRendezvous::serve_address(uint32_t ip_be) {
  auto& share = shares_[ip_be];
  if (share) return;
  share = std::make_unique<PortShare>(reactor_, host_, ip_be, port_);
  share->start();
}

void TcpRendezvous::leave_address(uint32_t ip_be) {
  shares_.erase(ip_be);
}

Rendezvous::DialId TcpRendezvous::dial(const wire::Gid& local, const wire::Gid& remote,
                                       const wire::Hello& hello, DialCallback callback) {
  const DialId id = next_dial_++;
  auto done = [this, id, callback = std::move(callback)](DialError error, UniqueFd fd,
                                                         const wire::Instance& peer) {
    const auto node = dials_.extract(id);  // lives until the end of its own callback
    callback(error, std::move(fd), peer);
  };
  auto& dial = dials_[id];
  dial = std::make_unique<TcpDial>(reactor_, std::move(done));
  const auto local_ip = local.ipv4(), remote_ip = remote.ipv4();
  if (local_ip && remote_ip)
    dial->start(*local_ip, *remote_ip, port_, hello, kDialTimeout);
  else
    dial->fail(DialError::kUnsupportedGid);
  return id;
}

void TcpRendezvous::dial_cancel(DialId id) {
  dials_.erase(id);
}

}  // namespace shift::control

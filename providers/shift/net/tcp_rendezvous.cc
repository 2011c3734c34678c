// Rendezvous over TCP: keeps the addresses that this process serves, and the dials that run.
#include "net/tcp_rendezvous.h"

namespace shift::net {

namespace {
constexpr std::chrono::milliseconds kDialTimeout{3000};
}

void TcpRendezvous::serve_address(uint32_t ip_be) {
  for (const uint64_t key : host_.secrets().key_ids()) {
    auto& share = shares_[{ip_be, key}];
    if (share) {
      share->refresh();
      continue;
    }
    const PortOwner::Rooms rooms{lobby_, local_lobby_, inbound_};
    share = std::make_unique<PortShare>(reactor_, host_, rooms, ip_be, Secrets::port_of(port_, key),
                                        key);
    share->start();
  }
}

void TcpRendezvous::leave_address(uint32_t ip_be) {
  std::erase_if(shares_, [ip_be](const auto& one) { return one.first.first == ip_be; });
}

std::optional<uint32_t> TcpRendezvous::gid_address(uint32_t local_ip_be, const wire::Gid& gid) {
  for (const auto& [place, share] : shares_)  // the GID is one of this host's
    if (host_.has_gid(place.first, gid)) return place.first;
  return resolver_.known(local_ip_be, gid);
}

void TcpRendezvous::gid_ask(uint32_t local_ip_be, const wire::Gid& gid, AskCallback callback) {
  resolver_.ask(local_ip_be, gid, std::move(callback));
}

void TcpRendezvous::gid_doubt(uint32_t local_ip_be, const wire::Gid& gid) {
  resolver_.doubt(local_ip_be, gid);
}

Rendezvous::DialId TcpRendezvous::dial(uint32_t local_ip_be, uint32_t remote_ip_be,
                                       const wire::Hello& hello, DialCallback callback) {
  const DialId id = next_dial_++;
  auto done = [this, id, callback = std::move(callback)](DialError error, Joining joining) {
    const auto node = dials_.extract(id);  // the dial lives until its callback has ended
    callback(error, std::move(joining));
  };
  auto& dial = dials_[id];
  dial = std::make_unique<TcpDial>(reactor_, host_, std::move(done));
  dial->start(local_ip_be, remote_ip_be, port_, hello, kDialTimeout);
  return id;
}

void TcpRendezvous::dial_cancel(DialId id) {
  dials_.erase(id);
}

}  // namespace shift::net

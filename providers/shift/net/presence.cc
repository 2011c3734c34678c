// Asks whether a process listens at a rendezvous port.
#include "net/presence.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "net/socket.h"

namespace shift::net {

using std::chrono::milliseconds;

bool Presence::at(const wire::Gid& local, const wire::Gid& remote, const Find& find) {
  const std::pair gids(local, remote);
  {
    std::lock_guard lock(mutex_);
    const auto found = known_.find(gids);
    if (found != known_.end() && Clock::now() - found->second.since < kept_for_) {
      return found->second.is_there;
    }
  }
  // The lock is not held here: a host that stays silent must not hold up connections to others.
  const auto addresses = find();
  const bool is_there = addresses && ask(*addresses);
  std::lock_guard lock(mutex_);
  if (known_.size() >= kKnownMax) known_.clear();
  known_[gids] = {is_there, Clock::now()};
  return is_there;
}

bool Presence::ask(Addresses addresses) const {
  const auto until = Clock::now() + patience_;
  return std::ranges::any_of(ports_, [&](uint16_t port) { return ask(addresses, port, until); });
}

bool Presence::ask(Addresses addresses, uint16_t port, Clock::time_point until) const {
  const UniqueFd fd = tcp_connect(addresses.local_ip_be, addresses.remote_ip_be, port);
  if (!fd) return false;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    struct pollfd connecting = {fd.get(), POLLOUT, 0};
    const int ready = poll(&connecting, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0 && socket_error(fd.get()) == 0;
  }
}

}  // namespace shift::net

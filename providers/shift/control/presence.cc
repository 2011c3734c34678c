// Whether somebody listens at a rendezvous port.
#include "control/presence.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "control/socket.h"

namespace shift::control {

using std::chrono::milliseconds;

bool Presence::at(uint32_t local_ip_be, uint32_t remote_ip_be) {
  const std::pair addresses(local_ip_be, remote_ip_be);
  {
    std::lock_guard lock(mutex_);
    const auto found = known_.find(addresses);
    if (found != known_.end() && Clock::now() - found->second.since < kept_for_) {
      return found->second.is_there;
    }
  }
  // Without the lock: a host that stays silent must not hold up the connections to others.
  const bool is_there = ask(local_ip_be, remote_ip_be);
  std::lock_guard lock(mutex_);
  if (known_.size() >= kKnownMax) known_.clear();
  known_[addresses] = {is_there, Clock::now()};
  return is_there;
}

bool Presence::ask(uint32_t local_ip_be, uint32_t remote_ip_be) const {
  const UniqueFd fd = tcp_connect(local_ip_be, remote_ip_be, port_);
  if (!fd) return false;
  const auto until = Clock::now() + patience_;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    struct pollfd connecting = {fd.get(), POLLOUT, 0};
    const int ready = poll(&connecting, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0 && socket_error(fd.get()) == 0;
  }
}

}  // namespace shift::control

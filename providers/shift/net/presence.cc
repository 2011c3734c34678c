// Asks whether a process listens at a rendezvous port.
#include "net/presence.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/socket.h"

namespace shift::net {

using std::chrono::milliseconds;

bool Presence::at(const wire::Gid& local, const wire::Gid& remote, const Find& find,
                  const FindMore& find_more) {
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
  Reply reply = addresses ? ask({*addresses}) : Reply::kSilent;
  if (reply == Reply::kSilent && find_more) reply = ask(find_more());
  const bool is_there = reply == Reply::kYes;
  std::lock_guard lock(mutex_);
  if (known_.size() >= kKnownMax) known_.clear();
  known_[gids] = {is_there, Clock::now()};
  return is_there;
}

namespace {

// Waits for one of the connections to be made or refused, and takes those that were off the list.
// 0: one is made; an errno: these have failed with it; ETIMEDOUT: none has answered until then.
int wait_for_one(std::vector<UniqueFd>& open, Presence::Clock::time_point until) {
  std::vector<struct pollfd> waits;
  for (const UniqueFd& one : open) waits.push_back({one.get(), POLLOUT, 0});
  const auto left = std::chrono::ceil<milliseconds>(until - Presence::Clock::now());
  const int ready =
      poll(waits.data(), waits.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
  if (ready < 0 && errno == EINTR) return EINTR;
  if (ready <= 0) return ETIMEDOUT;
  int error = EINTR;
  for (size_t i = waits.size(); i-- > 0;) {
    if (waits[i].revents == 0) continue;
    const int now = socket_error(open[i].get());
    if (now == 0) return 0;
    if (error != ECONNREFUSED) error = now;
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return error;
}

}  // namespace

Presence::Reply Presence::ask(const std::vector<Addresses>& pairs) const {
  const auto until = Clock::now() + patience_;
  std::vector<UniqueFd> open;
  Reply reply = Reply::kSilent;
  for (const Addresses& pair : pairs) {
    for (const uint16_t port : ports_) {
      UniqueFd fd = tcp_connect(pair.local_ip_be, pair.remote_ip_be, port);
      // On the loopback device, connect() itself may report the refusal.
      if (!fd && errno == ECONNREFUSED) reply = Reply::kNobody;
      if (fd) open.push_back(std::move(fd));
    }
  }
  while (!open.empty()) {
    const int error = wait_for_one(open, until);
    if (error == 0) return Reply::kYes;
    if (error == ECONNREFUSED) reply = Reply::kNobody;
    if (error == ETIMEDOUT && Clock::now() >= until) break;
  }
  return reply;
}

}  // namespace shift::net

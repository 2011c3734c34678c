#include "control/spread.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "control/nic_watch.h"
#include "control/session.h"
#include "group/context.h"

namespace shift::control {
namespace {

// The peer says it at once, so it is lost with a connection, or the peer is not what it says.
constexpr std::chrono::milliseconds kPatience{100};

uint8_t capacity_of(const group::Context& context, int member) {
  return std::max<uint8_t>(context.capacity[member], 1);
}

}  // namespace

bool has_nics_to_tell(const group::Context& context) {
  return context.member_count > 2;
}

bool Spread::tells() const {
  return has_nics_to_tell(*session_.group.context) && !session_.is_self;
}

void Spread::peer_bound(bool peer_tells) {
  const bool was_told = std::exchange(peer_tells_, tells() && peer_tells);
  if (!peer_tells_) {
    if (!is_settled_) settle();
  } else if (!was_told) {
    say();
    silence_.start(kPatience, [this] { settle(); });
  }
}

void Spread::bind_sent() {
  if (peer_tells_) say();
}

void Spread::say() {
  const group::Context& context = *session_.group.context;
  wire::Nics message{session_.ends.local, session_.ends.remote, session_.nics_up(), {}};
  int member = 0;
  for (const wire::Gid& gid : session_.search.own_addresses())
    message.nics.push_back({gid, capacity_of(context, member++)});
  session_.search.send(message);
}

void Spread::take(const wire::Nics& message) {
  const size_t count = message.nics.size();
  if (count == 0 || count > group::kMembersMax || !tells()) return;
  std::vector<wire::Gid> addresses;
  for (size_t m = 0; m < count; m++) {
    addresses.push_back(message.nics[m].gid);
    peers_[m] = std::max<uint8_t>(message.nics[m].capacity, 1);
  }
  // What this end has said before may have come before the peer had its proof.
  if (!std::exchange(has_heard_, true)) say();
  session_.book.peer_members_set(static_cast<int>(count), message.members_up);
  session_.search.set_peer_addresses(addresses);
  session_.search.widen();
  settle();
}

void Spread::settle() {
  silence_.cancel();
  is_settled_ = true;
  const group::Context& context = *session_.group.context;
  const int members = std::min(context.member_count, session_.book.peer_members());
  if (session_.control.is_leader && has_nics_to_tell(context)) {
    Capacities capacities{};
    for (int m = 0; m < members; m++) {
      const uint8_t own = capacity_of(context, m), peers = peers_[static_cast<size_t>(m)];
      capacities[static_cast<size_t>(m)] = peers == 0 ? own : std::min(own, peers);
    }
    shares_.give_back(session_.serial);
    session_.book.ranks_set(
        shares_.take(session_.serial, &context, session_.ends.remote.gid, capacities));
  }
  session_.paths.tend();
}

void Spread::end() {
  silence_.cancel();
  shares_.give_back(session_.serial);
}

}  // namespace shift::control

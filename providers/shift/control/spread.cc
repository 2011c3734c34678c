#include "control/spread.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "control/nic_watch.h"
#include "control/session.h"
#include "group/context.h"
#include "util/planted.h"

namespace shift::control {
namespace {

// The peer says it at once, so it is lost with a connection, or the peer is not what it says.
constexpr std::chrono::milliseconds kNicsPatience{100};
// With two NICs there is nothing to choose.
constexpr int kFew = 2;
static_assert(kFew == wire::Bind::kMembersMax, "kHasMore says that there are more than a few");

uint8_t capacity_of(const group::Context& context, int member) {
  return std::max<uint8_t>(context.capacity[member], 1);
}

}  // namespace

void Spread::peer_bound(const wire::Bind& bind) {
  if (session_.is_self && !SHIFT_PLANT(own_nics_forgotten)) {
    const std::vector<wire::Gid> own = session_.search.own_addresses();
    session_.book.peer_members_set(static_cast<int>(own.size()), session_.book.peer_up());
    session_.search.set_peer_addresses(own);
  }
  const bool peer_has_more = (bind.flags & wire::Bind::kHasMore) != 0 && !SHIFT_PLANT(more_unheard);
  const bool one_has_more = session_.group.context->member_count > kFew || peer_has_more;
  const bool may_tell = !session_.is_self && (bind.flags & wire::Bind::kTellsNics) != 0;
  const bool has_told = std::exchange(tells_, may_tell && one_has_more);
  if (!tells_) {
    if (!is_settled_) settle();
  } else if (!has_told) {
    say();
    if (!SHIFT_PLANT(nics_not_awaited)) return silence_.start(kNicsPatience, [this] { settle(); });
    settle();
  }
}

void Spread::bind_sent() {
  if (tells_) say();
}

void Spread::say() {
  const group::Context& context = *session_.group.context;
  wire::Nics message{session_.ends.local, session_.ends.remote, {}};
  int member = 0;
  for (const wire::Gid& gid : session_.search.own_addresses())
    message.nics.push_back({gid, capacity_of(context, member++)});
  session_.search.send(message);
}

void Spread::take(const wire::Nics& message) {
  const size_t count = message.nics.size();
  if (count == 0 || count > group::kMembersMax || !tells_ || session_.over) return;
  std::vector<wire::Gid> addresses;
  for (size_t m = 0; m < count; m++) {
    addresses.push_back(message.nics[m].gid);
    peers_[m] = std::max<uint8_t>(message.nics[m].capacity, 1);
  }
  // What this end has said before may have come before the peer had its proof.
  if (!std::exchange(has_heard_, true)) say();
  session_.book.peer_members_set(static_cast<int>(count), session_.book.peer_up());
  session_.search.set_peer_addresses(addresses);
  session_.search.widen();
  settle();
}

void Spread::settle() {
  silence_.cancel();
  is_settled_ = true;
  const group::Context& context = *session_.group.context;
  const int members = std::min(context.member_count, session_.book.peer_members());
  // The peer would not know the addresses of the others.
  const auto known = static_cast<int>(wire::Bind::kMembersMax);
  const bool knows_all = tells_ || session_.is_self || SHIFT_PLANT(unknown_nics_used);
  for (int m = known; m < context.member_count && !knows_all; m++) session_.book.own_lacks(m);
  if (session_.control.is_leader && context.member_count > kFew) {
    Capacities capacities{};
    for (int m = 0; m < members; m++) {
      const uint8_t own = capacity_of(context, m), peers = peers_[static_cast<size_t>(m)];
      const bool is_told = peers != 0 && !SHIFT_PLANT(peers_capacity_ignored);
      capacities[static_cast<size_t>(m)] = is_told ? std::min(own, peers) : own;
    }
    NicNumbers nics{};
    for (int m = 0; m < members; m++) nics[static_cast<size_t>(m)] = context.members[m].number;
    // The peer repeats what its NICs are whenever a connection joins. Another order would leave the
    // paths that are ready where they are no longer wanted.
    const Chosen by{capacities, nics};
    if (chosen_ != by || SHIFT_PLANT(order_chosen_again)) {
      chosen_ = by;
      shares_.give_back(session_.serial);
      session_.book.ranks_set(
          shares_.take(session_.serial, &context, nics, session_.ends.remote.gid, capacities));
    }
  }
  session_.paths.tend();
}

void Spread::end() {
  silence_.cancel();
  shares_.give_back(session_.serial);
}

}  // namespace shift::control

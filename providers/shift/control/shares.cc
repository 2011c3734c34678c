#include "control/shares.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include "util/planted.h"

namespace shift::control {
namespace {

using Count = std::array<int64_t, group::kMembersMax>;

// The member that is furthest below its share when one more group comes: its share of these groups,
// and where two are alike, of those; and where these are alike, too, `turn` says which. A member is
// left out that has its whole share of the groups with the peer already. kNoMember: no member has a
// capacity.
int neediest(const Capacities& capacities, const Count& with_peer, const Count& these,
             const Count& those, uint64_t turn) {
  const auto sum_of = [&](const auto& numbers) {
    int64_t sum = 0;
    for (size_t m = 0; m < numbers.size(); m++)
      if (capacities[m] != 0) sum += numbers[m];
    return sum;
  };
  const int64_t capacity = sum_of(capacities);
  // How many groups it lacks, each as `capacity`.
  const auto need = [&](size_t m, const Count& counts) {
    return (sum_of(counts) + 1) * capacities[m] - counts[m] * capacity;
  };
  const auto others = static_cast<uint64_t>(
      std::ranges::find_if(capacities.rbegin(), capacities.rend(), [](int c) { return c != 0; })
          .base() -
      capacities.begin() - 1);
  int best = group::kNoMember;
  std::tuple<int64_t, int64_t> most;
  for (uint64_t i = 0; capacity != 0 && i < others; i++) {
    const size_t m = 1 + (i + others - turn % others) % others;
    if (capacities[m] == 0 || need(m, with_peer) <= 0) continue;
    const std::tuple needs(need(m, these), need(m, those));
    if (best != group::kNoMember && needs <= most) continue;
    best = static_cast<int>(m);
    most = needs;
  }
  return best;
}

// Where the turns of groups between these two NICs begin. Hosts that connect to their peers in the
// same order would otherwise all choose alike for one of these.
uint64_t first_turn(uint64_t nic, const wire::Gid& peer) {
  if (nic == 0 || SHIFT_PLANT(turns_by_serial_alone)) return 0;
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  const auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 1099511628211u; };
  for (const uint8_t byte : peer.raw) add(byte);
  for (int i = 0; i < 8; i++) add(static_cast<uint8_t>(nic >> 8 * i));
  return hash >> 32;
}

size_t index(int member) {
  return static_cast<size_t>(member);
}

}  // namespace

Ranks Shares::take(uint64_t serial, const group::Context* context, const NicNumbers& nics,
                   const wire::Gid& peer, const Capacities& capacities) {
  const uint64_t number = nics[group::kDefault];
  Taken taken{
      context, peer, {number, number != 0 ? nullptr : context}, group::kNoMember, group::kNoMember,
      0,       0};
  const state::SharesTable::Turn table_turn(number != 0 ? table_.get() : nullptr);
  const Counts& with_peer = of_peers_[{context, peer}];
  const Counts on_all = on_host(taken.nic, nics);
  Capacities left = capacities;
  left[group::kDefault] = 0;
  const uint64_t turn = serial + first_turn(number, peer);
  Ranks ranks{};
  uint8_t rank = 0;
  const auto next = [&](int member) {
    ranks[index(member)] = rank++;
    left[index(member)] = 0;
    return member;
  };
  if (SHIFT_PLANT(shares_ignored)) {
    taken.first = next(group::kDefault + 1);
  } else if (const int first = neediest(left, with_peer.first, on_all.first, with_peer.first, turn);
             first >= 0) {
    taken.first = next(first);
    Count all_second{};
    for (const Count& each : on_all.second)
      std::ranges::transform(all_second, each, all_second.begin(), std::plus{});
    const int second = neediest(left, with_peer.second[index(first)], on_all.second[index(first)],
                                all_second, turn);
    if (second >= 0) taken.second = next(second);
  }
  if (taken.first >= 0) taken.first_nic = nics[index(taken.first)];
  if (taken.second >= 0) taken.second_nic = nics[index(taken.second)];
  // The others follow in the order of their capacities.
  std::array<int, group::kMembersMax> rest;
  std::iota(rest.begin(), rest.end(), 0);
  std::ranges::stable_sort(rest, std::greater{}, [&](int member) { return left[index(member)]; });
  for (const int member : rest) {
    if (member != group::kDefault && member != taken.first && member != taken.second) next(member);
  }
  count(taken, 1);
  taken_.emplace(serial, taken);
  return ranks;
}

void Shares::give_back(uint64_t serial) {
  const auto found = taken_.find(serial);
  if (found == taken_.end()) return;
  count(found->second, -1);
  taken_.erase(found);
}

void Shares::Counts::add(int first_member, int second_member, int64_t change) {
  groups += change;
  if (first_member < 0) return;
  first[index(first_member)] += change;
  if (second_member >= 0) second[index(first_member)][index(second_member)] += change;
}

// The groups of all processes of the user. What another one says of a NIC that is no member here
// does not count.
Shares::Counts Shares::on_host(const Nic& nic, const NicNumbers& nics) {
  const auto own = of_nics_.find(nic);
  Counts counts = own != of_nics_.end() ? own->second : Counts{};
  if (table_ == nullptr || nic.first == 0 || SHIFT_PLANT(other_processes_ignored)) return counts;
  const auto member_of = [&](uint64_t number) {
    const auto found = std::ranges::find(nics, number);
    const bool is_there = number != 0 && found != nics.end();
    return is_there ? static_cast<int>(found - nics.begin()) : group::kNoMember;
  };
  for (const state::SharesTable::Spares& spares : table_->others(nic.first))
    counts.add(member_of(spares.first), member_of(spares.second), spares.groups);
  return counts;
}

void Shares::count(const Taken& taken, int change) {
  const auto change_in = [&](auto& all, const auto& key) {
    Counts& counts = all[key];
    counts.add(taken.first, taken.second, change);
    if (counts.groups == 0) all.erase(key);
  };
  change_in(of_peers_, Peer{taken.context, taken.peer});
  change_in(of_nics_, taken.nic);
  if (table_ != nullptr && taken.nic.first != 0)
    table_->count(taken.nic.first, taken.first_nic, taken.second_nic, change);
}

}  // namespace shift::control

#include "control/shares.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include "util/planted.h"

namespace shift::control {
namespace {

using Count = std::array<int, group::kMembersMax>;

// The member that is furthest below its share when one more group comes: its share of these groups,
// and where two are alike, of those; and where these are alike, too, `turn` says which.
// kNoMember: no member has a capacity.
int neediest(const Capacities& capacities, const Count& these, const Count& those, uint64_t turn) {
  const auto sum_of = [&](const auto& numbers) {
    int sum = 0;
    for (size_t m = 0; m < numbers.size(); m++)
      if (capacities[m] != 0) sum += numbers[m];
    return sum;
  };
  const int capacity = sum_of(capacities);
  const auto need = [&](size_t m, const Count& counts) {
    return (sum_of(counts) + 1) * capacities[m] - counts[m] * capacity;
  };
  const auto others = static_cast<uint64_t>(
      std::ranges::find_if(capacities.rbegin(), capacities.rend(), [](int c) { return c != 0; })
          .base() -
      capacities.begin() - 1);
  int best = group::kNoMember;
  std::tuple<int, int> most;
  for (uint64_t i = 0; capacity != 0 && i < others; i++) {
    const size_t m = 1 + (i + others - turn % others) % others;
    if (capacities[m] == 0) continue;
    const std::tuple needs(need(m, these), need(m, those));
    if (best != group::kNoMember && needs <= most) continue;
    best = static_cast<int>(m);
    most = needs;
  }
  return best;
}

size_t index(int member) {
  return static_cast<size_t>(member);
}

}  // namespace

Ranks Shares::take(uint64_t serial, const group::Context* context, const wire::Gid& peer,
                   const Capacities& capacities) {
  Taken taken{context, peer, group::kNoMember, group::kNoMember};
  const Counts& with_peer = of_peers_[{context, peer}];
  const Sums& with_all = of_contexts_[context];
  Capacities left = capacities;
  left[group::kDefault] = 0;
  // As builds did that knew no capacities.
  const uint64_t turn = serial;
  Ranks ranks{};
  uint8_t rank = 0;
  const auto next = [&](int member) {
    ranks[index(member)] = rank++;
    left[index(member)] = 0;
    return member;
  };
  if (SHIFT_PLANT(shares_ignored)) {
    taken.first = next(group::kDefault + 1);
  } else if (const int first = neediest(left, with_peer.first, with_all.first, turn); first >= 0) {
    taken.first = next(first);
    Count seconds{};
    for (const Count& each : with_peer.second)
      std::ranges::transform(seconds, each, seconds.begin(), std::plus{});
    const int second = neediest(left, with_peer.second[index(first)], seconds, turn);
    if (second >= 0) taken.second = next(second);
  }
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

void Shares::count(const Taken& taken, int change) {
  const auto change_in = [&](auto& all, const auto& key, const auto& more) {
    auto& counts = all[key];
    if (taken.first >= 0) counts.first[index(taken.first)] += change;
    more(counts);
    counts.groups += change;
    if (counts.groups == 0) all.erase(key);
  };
  change_in(of_peers_, Peer{taken.context, taken.peer}, [&](Counts& counts) {
    if (taken.second >= 0) counts.second[index(taken.first)][index(taken.second)] += change;
  });
  change_in(of_contexts_, taken.context, [](Sums&) {});
}

}  // namespace shift::control

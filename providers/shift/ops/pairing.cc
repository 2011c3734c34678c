#include "ops/pairing.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace shift::ops {
namespace {

bool may_pair(const NicFacts& a, const NicFacts& b) {
  const auto is_unlike = [](const std::string& one, const std::string& other) {
    return !one.empty() && !other.empty() && one != other;
  };
  return !is_unlike(a.kind, b.kind) && !is_unlike(a.link_layer, b.link_layer);
}

template <typename T>
bool differ(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b && *a != *b;
}

// A card's functions have one address, but for the number after the dot.
bool is_one_card(const NicFacts& a, const NicFacts& b) {
  if (a.place.empty() || b.place.empty()) return false;
  const auto card = [](const std::string& function) {
    return function.substr(0, function.rfind('.'));
  };
  return card(a.place.back()) == card(b.place.back());
}

// How many PCI devices are on the way between them.
size_t hops(const NicFacts& a, const NicFacts& b) {
  if (a.place.empty() || b.place.empty()) return 0;
  const auto [in_a, in_b] = std::ranges::mismatch(a.place, b.place);
  return static_cast<size_t>(a.place.end() - in_a) + static_cast<size_t>(b.place.end() - in_b);
}

struct Pair {
  int a, b;
  // The smaller, the better they fit.
  std::tuple<bool, bool, bool, size_t, int, int> misfit;
};

Pair pair_of(const std::vector<NicFacts>& nics, int a, int b) {
  const NicFacts& one = nics[static_cast<size_t>(a)];
  const NicFacts& other = nics[static_cast<size_t>(b)];
  return {a,
          b,
          {differ(one.gigabits, other.gigabits), is_one_card(one, other),
           differ(one.numa_node, other.numa_node), hops(one, other), a, b}};
}

}  // namespace

std::vector<int> all_backups_of(const std::vector<NicFacts>& nics, int nic) {
  std::vector<Pair> pairs;
  for (int other = 0; other < static_cast<int>(nics.size()); other++) {
    if (other != nic && may_pair(nics[static_cast<size_t>(nic)], nics[static_cast<size_t>(other)]))
      pairs.push_back(pair_of(nics, nic, other));
  }
  std::ranges::sort(pairs, {}, &Pair::misfit);
  std::vector<int> backups;
  for (const Pair& pair : pairs) backups.push_back(pair.b);
  return backups;
}

namespace {

// What is left of a NIC's speed for memory that lies near another NIC. The defaults are users' own
// measurements of what GPUs reach over NICs near and far.
double reach(const NicFacts& from, const NicFacts& nic, const Config::Distance& distance) {
  const auto [below_one_switch, at_one_node, elsewhere] = distance;
  if (is_one_card(from, nic) || differ(from.numa_node, nic.numa_node)) return elsewhere;
  if (from.place.empty() || nic.place.empty()) return below_one_switch;
  return from.place.front() == nic.place.front() ? below_one_switch : at_one_node;
}

}  // namespace

std::vector<uint8_t> capacities_of(const std::vector<NicFacts>& group,
                                   const Config::Distance& distance) {
  constexpr double kMost = 200;
  const bool are_known =
      std::ranges::all_of(group, [](const NicFacts& nic) { return nic.gigabits.has_value(); });
  std::vector<double> gigabits;
  for (const NicFacts& nic : group) {
    const double speed = are_known ? *nic.gigabits : 1;
    const double bus = are_known ? nic.bus_gigabits.value_or(speed) : speed;
    gigabits.push_back(std::min(speed, bus) *
                       (&nic == &group.front() ? 1 : reach(group[0], nic, distance)));
  }
  const double most = gigabits.empty() ? 1 : *std::ranges::max_element(gigabits);
  std::vector<uint8_t> capacities;
  for (const double each : gigabits)
    capacities.push_back(static_cast<uint8_t>(std::clamp(each / most * kMost, 1.0, kMost)));
  return capacities;
}

std::vector<int> partners_of(const std::vector<NicFacts>& nics) {
  const int count = static_cast<int>(nics.size());
  std::vector<Pair> pairs;
  for (int a = 0; a < count; a++) {
    for (int b = a + 1; b < count; b++) {
      if (may_pair(nics[static_cast<size_t>(a)], nics[static_cast<size_t>(b)]))
        pairs.push_back(pair_of(nics, a, b));
    }
  }
  std::ranges::sort(pairs, {}, &Pair::misfit);
  std::vector<int> partners(nics.size(), -1);
  const auto partner = [&](int nic) -> int& { return partners[static_cast<size_t>(nic)]; };
  for (const Pair& pair : pairs) {
    if (partner(pair.a) >= 0 || partner(pair.b) >= 0) continue;
    partner(pair.a) = pair.b;
    partner(pair.b) = pair.a;
  }
  for (const Pair& pair : pairs) {
    if (partner(pair.a) < 0) partner(pair.a) = pair.b;
    if (partner(pair.b) < 0) partner(pair.b) = pair.a;
  }
  return partners;
}

bool speeds_matter(const std::vector<NicFacts>& nics) {
  return std::ranges::any_of(nics, [&](const NicFacts& one) {
    return std::ranges::count_if(nics, [&](const NicFacts& other) {
             return &other != &one && may_pair(one, other);
           }) > 1;
  });
}

}  // namespace shift::ops

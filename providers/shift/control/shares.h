// Decides to which NICs groups go first and second when their default NIC fails, so that the groups
// of one NIC spread over the others by what these can carry: each NIC gets its share of the groups,
// give or take one. It counts the groups that this process leads; the peer does so with its own.
// Only the control loop uses this.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "group/device.h"
#include "wire/names.h"

namespace shift::group {
struct Context;
}  // namespace shift::group

namespace shift::control {

// For each member of a group, what it can carry, compared with the others; 0: there is no such
// member at one of the two ends. That of the default counts for nothing.
using Capacities = std::array<uint8_t, group::kMembersMax>;
// For each member, how many others are to be tried before it. The default's means nothing.
using Ranks = std::array<uint8_t, group::kMembersMax>;

class Shares {
 public:
  // Counts the group in, which must not be counted yet, and says in which order it tries its NICs.
  // `peer` is the peer's default NIC.
  Ranks take(uint64_t serial, const group::Context* context, const wire::Gid& peer,
             const Capacities& capacities);
  // Counts the group out, if it is counted.
  void give_back(uint64_t serial);

 private:
  using Count = std::array<int, group::kMembersMax>;
  // How many groups go to each member first; and second, of those that go to another one first.
  struct Counts {
    int groups = 0;
    Count first{};
    std::array<Count, group::kMembersMax> second{};
  };
  // With all peers. The second choice does not look at these.
  struct Sums {
    int groups = 0;
    Count first{};
  };
  struct Taken {
    const group::Context* context;
    wire::Gid peer;
    int first, second;
  };
  using Peer = std::pair<const group::Context*, wire::Gid>;

  void count(const Taken& taken, int change);

  std::map<Peer, Counts> of_peers_;
  std::map<const group::Context*, Sums> of_contexts_;
  std::unordered_map<uint64_t, Taken> taken_;
};

}  // namespace shift::control

// Decides to which NICs groups go first and second when their default NIC fails, so that the groups
// of one NIC spread over the others by what these can carry: each NIC gets its share of the groups,
// give or take one. It counts the groups that the user's processes here lead; peers do so with
// their own. Only the control loop uses this.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "group/device.h"
#include "state/shares_table.h"
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
// The numbers of the members' NICs; 0: not known. Other processes know a NIC by its number.
using NicNumbers = std::array<uint64_t, group::kMembersMax>;

class Shares {
 public:
  // Without a table, groups of other processes do not count.
  void table_set(std::unique_ptr<state::SharesTable> table) { table_ = std::move(table); }
  // Counts the group in, which must not be counted yet, and says in which order it tries its NICs.
  // `peer` is the peer's default NIC.
  Ranks take(uint64_t serial, const group::Context* context, const NicNumbers& nics,
             const wire::Gid& peer, const Capacities& capacities);
  // Counts the group out, if it is counted.
  void give_back(uint64_t serial);

 private:
  using Count = std::array<int64_t, group::kMembersMax>;
  // How many groups go to each member first; and second, of those that go to another one first.
  struct Counts {
    int64_t groups = 0;
    Count first{};
    std::array<Count, group::kMembersMax> second{};

    void add(int first_member, int second_member, int64_t change);
  };
  // Two contexts may stand for one NIC. A NIC without a number is known by its context.
  using Nic = std::pair<uint64_t, const group::Context*>;
  using Peer = std::pair<const group::Context*, wire::Gid>;
  struct Taken {
    const group::Context* context;
    wire::Gid peer;
    Nic nic;
    int first, second;
    uint64_t first_nic, second_nic;
  };

  Counts on_host(const Nic& nic, const NicNumbers& nics);
  void count(const Taken& taken, int change);

  std::map<Peer, Counts> of_peers_;
  std::map<Nic, Counts> of_nics_;
  std::unordered_map<uint64_t, Taken> taken_;
  std::unique_ptr<state::SharesTable> table_;
};

}  // namespace shift::control

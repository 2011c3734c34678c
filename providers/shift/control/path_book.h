// Keeps the paths that a group has ready, and says which path the group should try next. It knows
// no verbs and sends nothing. The leader of each group keeps it; the follower only needs the
// members and the current path in it. Only the control loop uses it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "control/nic_pairs.h"
#include "control/shares.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace shift::control {

class PathBook {
 public:
  struct Ready {
    PathName path;
    uint32_t generation;
    Time since;  // the path may be taken for the way back from then on
  };

  // `spread` moves groups of one NIC to different members when there are several.
  void init(int own_members, bool own_is_self, uint64_t spread);
  void peer_members_set(int members, uint8_t up);
  // In which order the straight paths are to be taken; not told: by the number of the session.
  void ranks_set(const Ranks& ranks) { ranks_ = ranks; }
  void own_up_set(uint8_t up) { own_up_ = up; }
  uint8_t peer_up() const { return peer_up_; }
  int peer_members() const { return peer_members_; }
  void peer_up_set(uint8_t up) { peer_up_ = up; }
  // Bit n: the group shall leave member n, here or at the peer, though it works. Such a path is
  // taken only when there is no other.
  void own_avoided_set(uint8_t members) { own_avoided_ = members; }
  void peer_avoided_set(uint8_t members) { peer_avoided_ = members; }
  uint8_t own_avoided() const { return own_avoided_; }
  uint8_t peer_avoided() const { return peer_avoided_; }
  bool avoids(PathName path) const {
    return (own_avoided_ >> path.leader & 1) != 0 || (peer_avoided_ >> path.follower & 1) != 0;
  }
  // Whether the current path is one to leave, and this one is not.
  bool is_wanted_away(PathName path) const {
    return current_ && avoids(*current_) && !avoids(path);
  }
  // The group has no QP on that member of this host, nor will it have one.
  void own_lacks(int member) { own_lacking_ |= static_cast<uint8_t>(1u << member); }

  // A path of lower cost is better; the default path has the lowest.
  int cost(PathName path) const;
  bool works(PathName path) const;
  // Whether both ends have the members of the path, whatever state they are in.
  bool exists(PathName path, bool is_leader) const;

  // The peer has not answered an offer of the path in time, or has, though late. That says nothing
  // about the NICs, so no other group need know; but paths that the peer answers for come first.
  void unanswered(PathName path) { unanswered_[path]++; }
  void answered(PathName path) { unanswered_.erase(path); }
  int times_unanswered(PathName path) const {
    const auto found = unanswered_.find(path);
    return found == unanswered_.end() ? 0 : found->second;
  }

  // The path that carries the group; nullopt while the group is between two paths.
  void current_set(std::optional<PathName> path);
  const std::optional<PathName>& current() const { return current_; }

  void ready_add(PathName path, uint32_t generation, Time since);
  void ready_drop(PathName path);
  // Drops the ready paths that a member's state has made useless.
  void ready_clean();
  const Ready* best_ready() const;
  // The best ready path that beats the current one, if any.
  Ready* better_ready();
  const std::vector<Ready>& all_ready() const { return ready_; }
  // All paths, the best one first, with this end's NIC in the leader's place: own_first().
  std::vector<PathName> candidates() const {
    return ordered([](PathName) { return true; });
  }

  // Returns the path to try next: the best of the wanted paths that have failed least often. A
  // group that seeks, whose traffic stands still, first tries those whose NICs are least in doubt,
  // since a path that swallows what is sent takes its time to be found out. `again` becomes the
  // earliest time when it is worth asking again, and stays as it is if there is no such time.
  // `slow`: NICs at this end that a path had better not wait for.
  std::optional<PathName> next(Time now, uint64_t serial, Ways& ways, Time* again,
                               uint8_t slow = 0) const;
  // Returns a path that beats the current one and has a NIC in common with it: the best of those
  // that have failed least often. It is a straight one, unless the group shall leave the current
  // path. A QP has one connection, so that such a path can be tried
  // only after the current one has been given up.
  std::optional<PathName> better_blocked(Ways& ways) const;

 private:
  // The paths for which `is` is true, the best one first. Most of the time there is none.
  template <typename Is>
  std::vector<PathName> ordered(const Is& is) const;
  // How many paths are kept ready beside the current one: two, where there are many NICs.
  size_t spares() const;
  bool is_wanted(PathName path) const;
  bool is_better_blocked(PathName path) const;

  int own_members_ = 0, peer_members_ = 0;
  bool self_ = false;  // a QP connected to itself has the same member at both ends
  uint64_t spread_ = 0;
  std::optional<Ranks> ranks_;
  uint8_t own_up_ = 0, peer_up_ = 0, own_lacking_ = 0;
  uint8_t own_avoided_ = 0, peer_avoided_ = 0;
  std::optional<PathName> current_;
  std::vector<Ready> ready_;
  std::map<PathName, int> unanswered_;  // since the group has left, or taken, its current path
};

template <typename Is>
std::vector<PathName> PathBook::ordered(const Is& is) const {
  std::vector<PathName> found;
  for (int leader = 0; leader < own_members_; leader++) {
    for (int follower = 0; follower < peer_members_; follower++) {
      if (self_ && leader != follower) continue;
      const PathName path{static_cast<uint8_t>(leader), static_cast<uint8_t>(follower)};
      if (is(path)) found.push_back(path);
    }
  }
  std::ranges::sort(found, {}, [this](PathName path) { return cost(path); });
  return found;
}

}  // namespace shift::control

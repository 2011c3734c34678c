// Which paths a group has ready, which it tries, and which it should try next. Knows no verbs and
// sends nothing. Kept by the leader of each group; the follower only fills in its members.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "net/loop.h"
#include "wire/messages.h"

namespace shift::control {

using net::Loop;
using wire::PathName;

// What is known of the way between two NICs; shared by all groups that could use it. While it is
// known to fail, one group tries at a time, and the others follow when that one has got through.
struct Link {
  int failures = 0;
  Loop::Clock::time_point not_before{};
  uint64_t trying = 0;               // serial of the group; 0: none
  Loop::Clock::time_point spread{};  // when all groups on it were told last that it is broken
  // Paths that were given up to try this one, while nobody knew that it works: how often, when
  // last, and when it may be done again.
  int trades = 0;
  Loop::Clock::time_point traded{}, trade_not_before{};
};

class PathBook {
 public:
  struct Ready {
    PathName path;
    uint32_t generation;
    Loop::Clock::time_point since;  // may be taken for the way back from then on
  };

  // `spread` moves groups of one NIC to different members when there are several.
  void init(int own_members, bool own_is_self, uint64_t spread);
  void peer_members_set(int members, uint8_t up);
  void own_up_set(uint8_t up) { own_up_ = up; }
  void peer_up_set(uint8_t up) { peer_up_ = up; }
  // The group has no QP on that member of ours, nor will it have one.
  void own_lacks(int member) { own_lacking_ |= static_cast<uint8_t>(1u << member); }

  // Lower is better; default to default is the best.
  int cost(PathName path) const;
  bool works(PathName path) const;
  // Both ends have such members, whatever their state.
  bool exists(PathName path, bool is_leader) const;

  // The path that carries the group, nullopt while it is between two.
  void current_set(std::optional<PathName> path);
  const std::optional<PathName>& current() const { return current_; }

  void ready_add(PathName path, uint32_t generation, Loop::Clock::time_point since);
  void ready_drop(PathName path);
  // What the members' state or a new connection has made useless.
  void ready_clean();
  const Ready* best_ready() const;
  // The best ready path that beats the current one, if any.
  Ready* better_ready();
  const std::vector<Ready>& all_ready() const { return ready_; }

  // What to try next: the best of those that have failed least often. `link` gives the Link of a
  // path; with `again` the earliest time when it is worth to ask again (untouched if never).
  template <typename LinkOf>
  std::optional<PathName> next(Loop::Clock::time_point now, uint64_t serial, const LinkOf& link,
                               Loop::Clock::time_point* again) const;
  // Of the straight paths that beat the current one and have a NIC in common with it, the best of
  // those that have failed least often. A QP has one connection, so that such a path can be tried
  // only after the current one has been given up.
  template <typename LinkOf>
  std::optional<PathName> better_blocked(const LinkOf& link) const;

 private:
  // Every path, best first.
  std::vector<PathName> candidates() const;
  bool is_wanted(PathName path) const;
  bool is_better_blocked(PathName path) const;

  int own_members_ = 0, peer_members_ = 0;
  bool self_ = false;  // a QP connected to itself has the same member at both ends
  uint64_t spread_ = 0;
  uint8_t own_up_ = 0, peer_up_ = 0, own_lacking_ = 0;
  std::optional<PathName> current_;
  std::vector<Ready> ready_;
};

template <typename LinkOf>
std::optional<PathName> PathBook::next(Loop::Clock::time_point now, uint64_t serial,
                                       const LinkOf& link_of,
                                       Loop::Clock::time_point* again) const {
  std::optional<PathName> best;
  int failures = 0;
  for (const PathName path : candidates()) {
    if (!is_wanted(path)) continue;
    const Link& link = link_of(path);
    if (link.not_before > now) {
      if (*again > link.not_before) *again = link.not_before;
      continue;
    }
    if (link.failures > 0 && link.trying != 0 && link.trying != serial) continue;
    // Two paths whose attempts outlast their rests must not keep the others from being tried.
    if (best && link.failures >= failures) continue;
    best = path;
    failures = link.failures;
  }
  return best;
}

template <typename LinkOf>
std::optional<PathName> PathBook::better_blocked(const LinkOf& link_of) const {
  std::optional<PathName> best;
  for (const PathName path : candidates()) {
    if (!is_better_blocked(path)) continue;
    if (!best || link_of(path).failures < link_of(*best).failures) best = path;
  }
  return best;
}

}  // namespace shift::control

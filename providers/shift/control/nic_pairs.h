// What is known of the ways between NICs here and NICs of other hosts. All groups that could use a
// way share this. Only the control loop uses it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "group/group.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace shift::control {

using net::Loop;
using wire::PathName;
using Time = Loop::Clock::time_point;

// The way between one NIC here and one NIC of a peer's host. While it is known to fail, one group
// tries it at a time, and the other groups follow when that group has got through.
struct NicPair {
  int failures = 0;
  Time not_before{};    // no group tries the pair until then
  uint64_t trying = 0;  // serial of the session that tries the pair; 0 if none does
  Time spread{};        // when all groups on the pair were told last that it is broken
  // Trades for this pair while nobody knew that it works: how many there were, when the last one
  // was, and when the next one may be.
  int trades = 0;
  Time traded{}, trade_not_before{};
  const char* why = nullptr;  // why the last try failed; null: it did not, or there was none

  // A round has just left this pair. To try it at once would keep hundreds of QPs busy with a way
  // that does not work, so one group tries it later.
  void rest(Time now) {
    constexpr std::chrono::milliseconds kRest{100};
    if (failures < 1) failures = 1;
    if (not_before < now + kRest) not_before = now + kRest;
  }
};

class NicPairs {
 public:
  // The pair of a path between the context's NICs and those of the host whose default NIC has the
  // GID `peer`. The reference is valid until context_forget().
  NicPair& of(const group::Context* context, const wire::Gid& peer, PathName path) {
    return pairs_[{context, peer, path}];
  }
  // NICs of the context, or of that peer, changed their state: pairs that failed before deserve
  // another chance at once.
  void retry(const group::Context* context) {
    for (auto& [key, pair] : pairs_) {
      if (std::get<0>(key) == context) pair.not_before = {};
    }
  }
  void retry(const wire::Gid& peer) {
    for (auto& [key, pair] : pairs_) {
      if (std::get<1>(key) == peer) pair.not_before = {};
    }
  }
  void session_forget(uint64_t serial) {
    for (auto& [key, pair] : pairs_) {
      if (pair.trying == serial) pair.trying = 0;
    }
  }
  // Whether the context's groups with that peer have not been called unprotected yet.
  bool first_to_tell(const group::Context* context, const wire::Gid& peer) {
    return told_.emplace(context, peer).second;
  }
  void context_forget(const group::Context* context) {
    std::erase_if(told_, [context](const auto& entry) { return entry.first == context; });
    std::erase_if(pairs_,
                  [context](const auto& entry) { return std::get<0>(entry.first) == context; });
  }

 private:
  std::map<std::tuple<const group::Context*, wire::Gid, PathName>, NicPair> pairs_;
  std::set<std::pair<const group::Context*, wire::Gid>> told_;
};

}  // namespace shift::control

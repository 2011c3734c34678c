// What is known of the ways between NICs here and NICs of other hosts: shared by all groups that
// could use them. Control loop only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <tuple>

#include "group/group.h"
#include "net/loop.h"
#include "wire/messages.h"

namespace shift::control {

using net::Loop;
using wire::PathName;
using Time = Loop::Clock::time_point;

// One such way. While it is known to fail, one group tries it at a time, and the others follow when
// that one has got through.
struct NicPair {
  int failures = 0;
  Time not_before{};    // nobody tries it until then
  uint64_t trying = 0;  // serial of the session that tries it; 0: none does
  Time spread{};        // when all groups on it were told last that it is broken
  // Paths that were given up to try this one, while nobody knew that it works: how often, when
  // last, and when it may be done again.
  int trades = 0;
  Time traded{}, trade_not_before{};

  // A round has just left it: to try it at once would keep hundreds of QPs busy with what does not
  // work. One of them finds out later.
  void rest(Time now) {
    constexpr std::chrono::milliseconds kRest{100};
    if (failures < 1) failures = 1;
    if (not_before < now + kRest) not_before = now + kRest;
  }
};

class NicPairs {
 public:
  // The pair of a path between the context's NICs and those of the host whose default NIC has
  // `peer`. Valid until context_forget().
  NicPair& of(const group::Context* context, const wire::Gid& peer, PathName path) {
    return pairs_[{context, peer, path}];
  }
  // NICs of the context, or of that peer, changed their state: what failed before deserves another
  // chance at once.
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
  void context_forget(const group::Context* context) {
    std::erase_if(pairs_,
                  [context](const auto& entry) { return std::get<0>(entry.first) == context; });
  }

 private:
  std::map<std::tuple<const group::Context*, wire::Gid, PathName>, NicPair> pairs_;
};

}  // namespace shift::control

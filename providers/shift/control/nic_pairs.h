// What is known of the ways between NICs here and NICs of other hosts. All groups that could use a
// way share this. Only the control loop uses it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
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
  // No group that seeks, whose traffic stands still, pauses for longer after a failure.
  static constexpr std::chrono::milliseconds kPauseSeeking{100};

  int failures = 0;
  // No group tries the pair until then; one that seeks does so from `seek_not_before`.
  Time not_before{}, seek_not_before{};
  uint64_t trying = 0;        // serial of the session that tries the pair; 0 if none does
  bool seeker_tries = false;  // that session seeks
  Time spread{};              // when all groups on the pair were told last that it is broken
  // Trades for this pair while nobody knew that it works: how many there were, when the last one
  // was, and when the next one may be.
  int trades = 0;
  Time traded{}, trade_not_before{};
  const char* why = nullptr;  // why the last try failed; null: it did not, or there was none
  // When something passed last, and when nothing did though both NICs work as far as this end
  // knows: one of them, or what lies between, is broken without a word.
  Time passed{}, silent{};

  Time earliest(bool seeks) const;
  // Whether another session tries the pair for this one, too. One that seeks relies on no session
  // that has time.
  bool is_tried_for(uint64_t serial, bool seeks) const;
  void pause(Time now, std::chrono::nanoseconds span);
  void pauses_end() { not_before = seek_not_before = {}; }

  void failed(Time now, bool nics_work) {
    failures++;
    doubt(now, nics_work);
  }
  // Traffic has stopped on this pair: a group that seeks does better to try others first.
  void doubt(Time now, bool nics_work) {
    if (nics_work) silent = now;
  }
  // A round has just left this pair. To try it at once would keep hundreds of QPs busy with a way
  // that does not work, so one group tries it later.
  void rest(Time now, bool nics_work) {
    constexpr std::chrono::milliseconds kRest{100};
    failures = std::max(failures, 1);
    pause(now, kRest);
    doubt(now, nics_work);
  }
};

// The pairs of the NICs here and those of one peer's host.
using Ways = std::map<PathName, NicPair>;

// How likely it is, by the ways that are silent, that a NIC here or at the peer is broken. Each
// such way speaks against both of its NICs, unless something has passed at one of them since: then
// it speaks against the other one, and so much the more.
class Doubts {
 public:
  int of(PathName path) const { return leader_[path.leader] + follower_[path.follower]; }

  explicit Doubts(const Ways& ways) {
    group::PerMember<Time> leader_passed{}, follower_passed{};
    for (const auto& [path, pair] : ways) {
      leader_passed[path.leader] = std::max(leader_passed[path.leader], pair.passed);
      follower_passed[path.follower] = std::max(follower_passed[path.follower], pair.passed);
    }
    for (const auto& [path, pair] : ways) {
      if (pair.silent <= pair.passed) continue;
      const bool leader_works = leader_passed[path.leader] > pair.silent;
      const bool follower_works = follower_passed[path.follower] > pair.silent;
      if (!leader_works) leader_[path.leader] += follower_works ? kProven : 1;
      if (!follower_works) follower_[path.follower] += leader_works ? kProven : 1;
    }
  }

 private:
  static constexpr int kProven = 8;  // as if all ways of the NIC were silent
  group::PerMember<int> leader_{}, follower_{};
};

class NicPairs {
 public:
  // The pairs of the context's NICs and those of the host whose default NIC has the GID `peer`. The
  // reference is valid until context_forget().
  Ways& of(const group::Context* context, const wire::Gid& peer) { return ways_[{context, peer}]; }
  // NICs of the context, or of that peer, changed their state: pairs that failed before deserve
  // another chance at once.
  void retry(const group::Context* context) {
    for (auto& [key, ways] : ways_) {
      if (key.first == context) retry(ways);
    }
  }
  void retry(const wire::Gid& peer) {
    for (auto& [key, ways] : ways_) {
      if (key.second == peer) retry(ways);
    }
  }
  void session_forget(uint64_t serial) {
    for (auto& [key, ways] : ways_) {
      for (auto& [path, pair] : ways) {
        if (pair.trying == serial) pair.trying = 0;
      }
    }
  }
  // Whether the context's groups with that peer have not been called unprotected yet.
  bool first_to_tell(const group::Context* context, const wire::Gid& peer) {
    return told_.emplace(context, peer).second;
  }
  void context_forget(const group::Context* context) {
    const auto is_its = [context](const auto& entry) { return entry.first == context; };
    std::erase_if(told_, is_its);
    std::erase_if(ways_, [&](const auto& entry) { return is_its(entry.first); });
  }

 private:
  static void retry(Ways& ways) {
    for (auto& [path, pair] : ways) pair.pauses_end();
  }

  std::map<std::pair<const group::Context*, wire::Gid>, Ways> ways_;
  std::set<std::pair<const group::Context*, wire::Gid>> told_;
};

}  // namespace shift::control

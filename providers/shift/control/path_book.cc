#include "control/path_book.h"

#include <algorithm>
#include <tuple>

#include "util/planted.h"

namespace shift::control {
namespace {

bool share_member(PathName a, PathName b) {
  return a.leader == b.leader || a.follower == b.follower;
}

}  // namespace

void PathBook::init(int own_members, bool own_is_self, uint64_t spread) {
  *this = {};
  own_members_ = own_members;
  self_ = own_is_self;
  spread_ = spread;
  current_ = PathName{0, 0};
}

bool PathBook::exists(PathName path, bool is_leader) const {
  const auto [own, peer] =
      is_leader ? std::pair(path.leader, path.follower) : std::pair(path.follower, path.leader);
  return own < own_members_ && peer < peer_members_;
}

void PathBook::peer_members_set(int members, uint8_t up) {
  peer_members_ = members;
  peer_up_ = up;
}

int PathBook::cost(PathName path) const {
  constexpr int kCrossRail = 64, kAvoided = 128;
  const int avoided = avoids(path) ? kAvoided : 0;
  if (path.leader != path.follower) return avoided + kCrossRail + path.leader * 8 + path.follower;
  if (path.leader == 0) return avoided;
  if (ranks_) return avoided + 1 + (*ranks_)[path.leader];
  const int others = std::max(std::min(own_members_, peer_members_) - 1, 1);
  return avoided + 1 +
         static_cast<int>((path.leader - 1u + spread_) % static_cast<unsigned>(others));
}

bool PathBook::works(PathName path) const {
  return ((own_up_ & ~own_lacking_) >> path.leader & 1) != 0 &&
         (peer_up_ >> path.follower & 1) != 0;
}

void PathBook::current_set(std::optional<PathName> path) {
  current_ = path;
  unanswered_.clear();
  if (path) std::erase_if(ready_, [&](const Ready& r) { return share_member(r.path, *path); });
}

void PathBook::ready_add(PathName path, uint32_t generation, Time since) {
  std::erase_if(ready_, [&](const Ready& r) { return share_member(r.path, path); });
  ready_.push_back({path, generation, since});
}

void PathBook::ready_drop(PathName path) {
  std::erase_if(ready_, [&](const Ready& r) { return share_member(r.path, path); });
}

void PathBook::ready_clean() {
  std::erase_if(ready_, [&](const Ready& r) { return !works(r.path); });
}

const PathBook::Ready* PathBook::best_ready() const {
  const auto best =
      std::ranges::min_element(ready_, {}, [this](const Ready& r) { return cost(r.path); });
  return best == ready_.end() ? nullptr : &*best;
}

PathBook::Ready* PathBook::better_ready() {
  if (!current_) return nullptr;
  const auto best =
      std::ranges::min_element(ready_, {}, [this](const Ready& r) { return cost(r.path); });
  return best == ready_.end() || cost(best->path) >= cost(*current_) ? nullptr : &*best;
}

std::optional<PathName> PathBook::next(Time now, uint64_t serial, Ways& ways, Time* again,
                                       uint8_t slow) const {
  const bool seeks = !current_;
  std::optional<Doubts> doubts;
  if (seeks) doubts.emplace(ways);
  // Two paths whose attempts outlast their rests must not keep the others from being tried, so what
  // was tried in vain counts before all else.
  using Rank = std::tuple<int, bool, int>;
  std::optional<PathName> best;
  Rank best_rank;
  for (const PathName path : ordered([this](PathName each) { return is_wanted(each); })) {
    if ((slow >> path.leader & 1) != 0) continue;
    const NicPair& pair = ways[path];
    if (const Time earliest = pair.earliest(seeks); earliest > now) {
      *again = std::min(*again, earliest);
      continue;
    }
    if (pair.is_tried_for(serial, seeks)) continue;
    const int in_vain =
        pair.failures + (SHIFT_PLANT(unanswered_forgotten) ? 0 : times_unanswered(path));
    const Rank rank{in_vain, avoids(path),
                    doubts && !SHIFT_PLANT(doubts_ignored) ? doubts->of(path) : 0};
    if (best && rank >= best_rank) continue;
    best = path;
    best_rank = rank;
  }
  return best;
}

std::optional<PathName> PathBook::better_blocked(Ways& ways) const {
  std::optional<PathName> best;
  for (const PathName path : ordered([this](PathName each) { return is_better_blocked(each); })) {
    if (!best || ways[path].failures < ways[*best].failures) best = path;
  }
  return best;
}

size_t PathBook::spares() const {
  return std::min(own_members_, peer_members_) > 3 ? 2 : 1;
}

bool PathBook::is_wanted(PathName path) const {
  if (!works(path)) return false;
  const bool is_ready = std::ranges::any_of(ready_, [&](const Ready& r) { return r.path == path; });
  if (is_ready) return false;
  if (!current_) return ready_.empty();  // a group that seeks needs only one ready path
  if (share_member(path, *current_)) return false;
  // The group wants spares to go to when the current path fails, and every path that is better than
  // the current one.
  const bool displaces_better = std::ranges::any_of(ready_, [&](const Ready& r) {
    return share_member(r.path, path) && cost(r.path) <= cost(path);
  });
  if (displaces_better) return false;
  return ready_.size() < spares() || cost(path) < cost(*current_);
}

bool PathBook::is_better_blocked(PathName path) const {
  const bool is_straight = path.leader == path.follower;
  return current_ && (is_straight || is_wanted_away(path)) && works(path) &&
         share_member(path, *current_) && cost(path) < cost(*current_);
}

}  // namespace shift::control

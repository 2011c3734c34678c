#include "sim/rounds_judge.h"

#include <algorithm>

namespace shift::sim {
namespace {

bool carries(const std::string& state) {
  return state == "active" || state == "draining" || state == "held";
}

}  // namespace

void RoundsJudge::disturbed(Time until) {
  calm_ = false;
  disturbed_ = std::max(disturbed_, until);
}

void RoundsJudge::healed(Time now) {
  disturbed_ = std::min(disturbed_, now);
}

std::string RoundsJudge::take(const Transition& t, Time now) {
  const auto host = static_cast<size_t>(t.host);
  std::string broken;
  const End& peer = ends_[1 - host];
  if (t.on == "better-path") {
    // The other end may have left the path for a fault that this end has not heard of yet.
    const bool is_at_peace = peer.state == "active";
    if (is_at_peace) by_fault_ = false;
    calm_ = is_at_peace && now - kAftermath > disturbed_;  // disturbed_ may be for ever
  }
  if (t.on == "path-fault") {
    if (calm_) broken = "C7: a path is taken for broken, and nothing has happened to any";
    by_fault_ = true;
  }
  // Only the leader finds a peer again after a lost channel, and only while it has not failed.
  const bool peer_could_say_so = now > std::max(peer.since, channel_bad_) + kAnswer &&
                                 (t.host == leader_ || channel_bad_ == Time{});
  if (t.on == "deadline" && peer.state == "failed" && peer_could_say_so) {
    broken = "C6: an end waits for a peer that has failed";
  }
  if (broken.empty()) broken = drain_take(t, now);
  if (broken.empty()) broken = deadline_take(t, now);
  End& own = ends_[host];
  if (carries(t.from) && !carries(t.to)) own.left_path = now;
  if (own.state == "draining" && t.to != "draining") own.left_draining = now;
  if (own.state != t.to) own.since = now;
  own.state = t.to;
  return broken;
}

// Nobody dies of what the stock library bears.
std::string RoundsJudge::deadline_take(const Transition& t, Time now) const {
  const End& own = ends_[static_cast<size_t>(t.host)];
  if (t.on != "deadline") return {};
  const Duration least = own.hopeless ? kExchange : own.patience;
  if (now < own.left_path + least) return "C7: an end gives up before its time";
  if (t.idle && !own.hopeless) return "C7: an end that has sent nothing gives up";
  return {};
}

std::string RoundsJudge::drain_take(const Transition& t, Time now) {
  const End& peer = ends_[1 - static_cast<size_t>(t.host)];
  if (t.on == "peer-drain" && peer.state != "draining" && now > peer.left_draining + kMessage) {
    return "C8: an end parks for a drain that is over";
  }
  if (t.on == "peer-drain-cancel" && peer.state == "draining" && now > peer.since + kMessage) {
    return "C8: an end is unparked in the middle of a drain";
  }
  if (t.host == leader_ && t.on == "drained" && peer.state == "active") {
    return "C8: an end counts for drained that is not";
  }
  return {};
}

}  // namespace shift::sim

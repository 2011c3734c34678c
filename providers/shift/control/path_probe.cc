#include "control/path_probe.h"

#include <algorithm>
#include <utility>

#include "group/member_qp.h"

namespace shift::control {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

// A probe on a path that works is back very soon, so the first looks have short pauses.
constexpr milliseconds kFreshProbe{1};
constexpr microseconds kAnswerFresh{20}, kAnswer{1000};

}  // namespace

void PathProbe::start(int member, milliseconds patience, Then then) {
  stop();
  patience_ = patience;
  member_ = member;
  then_ = std::move(then);
  begun_ = loop_.now();
  group::member_qp_probe(group_, member);
  look();
}

void PathProbe::hurry(milliseconds patience) {
  patience_ = std::min<std::chrono::nanoseconds>(patience_, loop_.now() - begun_ + patience);
}

void PathProbe::stop() {
  look_again_.cancel();
  if (member_ == group::kNoMember) return;
  group::member_qp_probe_forget(group_, std::exchange(member_, group::kNoMember));
  then_ = nullptr;
}

// Polls for the probe's completion on the member where it was posted.
void PathProbe::look() {
  const group::Probe probe = group::member_qp_probe_look(group_, member_);
  const auto waited = loop_.now() - begun_;
  if (probe == group::Probe::kPosted && waited < patience_) {
    return look_again_.start(waited < kFreshProbe ? kAnswerFresh : kAnswer, [this] { look(); });
  }
  const Then then = std::exchange(then_, nullptr);
  stop();
  then(probe == group::Probe::kDone);
}

}  // namespace shift::control

#include "control/parking.h"

#include <algorithm>

#include "control/session.h"
#include "control/sessions.h"
#include "group/park.h"

namespace shift::control {

using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

// Most batches take a few calls, so a new wait looks often.
constexpr milliseconds kFresh{2};
constexpr microseconds kParkedFresh{5}, kParked{500};

}  // namespace

void Parking::park(const std::vector<Session*>& sessions) {
  std::vector<group::Group*> groups;
  for (Session* session : sessions) {
    groups.push_back(&session->group);
    waiting_.push_back(session->serial);
  }
  std::ranges::sort(waiting_);
  waiting_.erase(std::unique(waiting_.begin(), waiting_.end()), waiting_.end());
  group::park(groups);
  begun_ = loop_.now();
  look();
}

void Parking::look_later() {
  const bool fresh = loop_.now() - begun_ < kFresh;
  look_again_.start(fresh ? kParkedFresh : kParked, [this] { look(); });
}

void Parking::look() {
  std::vector<Session*> parked;
  std::erase_if(waiting_, [&](uint64_t serial) {
    Session* session = sessions_.find(serial);
    if (session == nullptr) return true;
    if (!group::batch_is_over(session->group)) return false;
    parked.push_back(session);
    return true;
  });
  if (!waiting_.empty()) look_later();
  if (!parked.empty()) parked_(parked);
}

}  // namespace shift::control

#include "control/spare_watch.h"

#include "control/line_budget.h"
#include "control/nic_watch.h"
#include "control/sessions.h"
#include "control/ways.h"
#include "group/context.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

namespace {

constexpr std::chrono::seconds kWithoutSpare{10};

}  // namespace

void SpareWatch::start() {
  look_.start(kWithoutSpare, [this] { look(); });
}

void SpareWatch::look() {
  if (session_.over || session_.control.state == fsm::State::kClosed) return;
  if (session_.control.state != fsm::State::kActive) return start();  // a round is under way
  // One line is enough for all groups between two hosts.
  if (!pairs_.first_to_tell(session_.group.context, session_.ends.remote.gid)) return;
  if (!log_enabled(LogLevel::kWarn) || !lines_.no_spare.allow()) return;
  SHIFT_WARN("qp 0x%x on %s: no second path after %d s, so a fault would not be masked: %s",
             session_.group.qpn(), session_.group.context->device->dev.name,
             static_cast<int>(kWithoutSpare.count()), reasons().c_str());
}

std::string SpareWatch::reasons() const {
  const auto& members = session_.group.context->members;
  std::string text;
  if (!session_.book.current()) return text;
  const PathName current = own_first(session_, *session_.book.current());
  for (PathName path : session_.book.candidates()) {
    if (SHIFT_PLANT(roles_confused)) path = own_first(session_, path);
    if (path.leader == current.leader || path.follower == current.follower) continue;
    text += (text.empty() ? "" : "; ") + std::string(members[path.leader].real->device->name) +
            " to the peer's NIC " + std::to_string(path.follower) + ": " + reason(path);
  }
  return text.empty() ? "the peer has one NIC only" : text;
}

const char* SpareWatch::reason(PathName path) const {
  const int own = path.leader;
  if ((nics_.up(session_.group.context) >> own & 1) == 0)
    return "its port is down, or has no IPv4 address";
  if (!session_.book.works(path)) return "the peer's port is down, or has no IPv4 address";
  if (session_.qps.lacks(own)) return "no queue pair could be made there";
  if (!session_.control.is_leader) return "the peer leads, and has not made it ready";
  const char* why = session_.paths.pair_of(path).why;
  return why != nullptr ? why : "it has not been tried yet";
}

}  // namespace shift::control

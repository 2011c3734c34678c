// Decides which process owns the port. The name of the local socket is the lock: the process that
// binds the name is the owner, and the kernel frees the name when that process ends, however it
// ends.
#include "net/port_share.h"

#include <algorithm>
#include <cerrno>

#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

using namespace std::chrono_literals;

namespace {
// Some moments pass between an owner's bind and its listen, and between an owner's end and the time
// when this process notices it.
constexpr auto kPauseMin = 2ms;
// A stranger may hold the port for ever, so an attempt now and then must cost almost nothing.
constexpr std::chrono::milliseconds kPauseMax = 5s;
// The owner has a second to take this process in, which a host that is short of processors may not
// give it once or twice.
constexpr int kRefusalsToTell = 3;
}  // namespace

PortShare::~PortShare() {
  reactor_.timer_cancel(retry_);
}

void PortShare::refresh() {
  if (owner_) answerer_.start();
}

void PortShare::seek() {
  retry_ = 0;
  sharer_.reset();
  if (try_own())
    pause_ = 0ms;
  else if (!try_join())
    seek_later();
}

// When the owner ends, the first of its sharers to bind the name takes over. An owner that never
// took this process in may not do so next time either.
void PortShare::on_lost() {
  if (sharer_->is_welcome()) {
    pause_ = 0ms;
    refusals_ = 0;
    return seek();
  }
  if (++refusals_ >= kRefusalsToTell) {
    SHIFT_WARN_LIMITED(
        "port %u of %s is served by a process that shares it with others only: no "
        "failover over it",
        unsigned{port_}, IpText(ip_be_).c_str());
  }
  sharer_.reset();
  seek_later();
}

bool PortShare::try_own() {
  UniqueFd local = local_listen(local_name());
  if (!local) return false;
  owner_ =
      std::make_unique<PortOwner>(reactor_, host_, rooms_, ip_be_, port_, key_, std::move(local));
  if (owner_->start()) {
    answerer_.start();
    return true;
  }
  owner_.reset();
  return false;
}

bool PortShare::try_join() {
  std::string name = local_name();
  UniqueFd local = local_connect(name);
  if (!local) return false;
  if (key_ == 0 && !local_peer_trusted(local.get())) {
    SHIFT_WARN_LIMITED("port %u of %s is served by another user's process: no failover over it",
                       unsigned{port_}, IpText(ip_be_).c_str());
    pause_ = kPauseMax;
    return false;
  }
  sharer_ = std::make_unique<PortSharer>(reactor_, host_, rooms_.inbound, std::move(local),
                                         std::move(name), key_);
  if (sharer_->start([this] { on_lost(); })) return true;
  sharer_.reset();
  return false;
}

void PortShare::seek_later() {
  pause_ = std::clamp<std::chrono::milliseconds>(pause_ * 2, kPauseMin, kPauseMax);
  retry_ = reactor_.timer_start(pause_, [this] { seek(); });
}

}  // namespace shift::net

#include "control/session.h"

#include <algorithm>
#include <utility>

#include "control/read_backs.h"
#include "group/context.h"
#include "group/member_qp.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::control {

namespace {

constexpr std::chrono::seconds kRedialPause(1);

}  // namespace

Session::Session(group::Group& g, Shared& s)
    : group(g),
      control(g.life.control),
      ends(g.life.ends),
      serial(g.life.serial),
      is_self(ends.local == ends.remote),
      made(s.loop.now()),
      search(g, *this, s.loop, s.net, s.nics),
      qps(*this, s.jobs, s.nics),
      probe(g, s.loop),
      paths(*this, s.sessions, s.loop, s.machine, s.pairs, s.turns),
      spread(*this, s.loop, s.shares),
      avoidance(*this, s.next_avoid),
      way_back(*this, s.loop, s.machine, s.moves),
      offers(*this, s.nics),
      drain(*this, s.loop, s.machine),
      round(*this, s.loop, s.machine, s.jobs, s.nics, s.lines),
      keys(*this, s.loop, s.machine, s.jobs, s.next_query),
      gone(*this, s.next_gone),
      spare(*this, s.loop, s.pairs, s.nics, s.lines),
      failing(*this, s.loop, s.jobs),
      verdict(*this, s.machine, s.jobs),
      shared_(s),
      redial_pause_(s.loop) {
  book.init(g.context->member_count, is_self, serial);
  book.own_up_set(s.nics.up(g.context));
}

void Session::end() {
  over = true;
  spare.stop();
  spread.end();
  search.end();
}

bool Session::may_come_back() const {
  return !over && !group.context->members[group::kDefault].dead && !search.is_peer_gone();
}

std::chrono::nanoseconds Session::patience() const {
  const std::chrono::nanoseconds least = std::chrono::milliseconds(config().exchange_ms);
  return may_come_back() ? std::max(least, group::asked_patience(group)) : least;
}

void Session::say_again() {
  search.send_bind();
  send_members();
  avoidance.say_again();
  for (const PathBook::Ready& ready : book.all_ready()) {
    search.send(wire::Ready{ends.local, ends.remote, ready.path, ready.generation,
                            wire::Ready::Kind::kReady});
  }
  drain.say_again();
  round.say_again();
  keys.say_again();
  gone.say_again();
  paths.say_again();
}

void Session::send_members() {
  if (search.channel() == nullptr) return;
  search.send(wire::Members{ends.local, ends.remote, shared_.next_members++,
                            shared_.nics.up(group.context)});
}

bool Session::take_members_sequence(uint32_t sequence) {
  if (static_cast<int32_t>(sequence - members_heard_) <= 0) return false;
  members_heard_ = sequence;
  return true;
}

void Session::redial_soon() {
  if (redial_pause_.is_running()) {
    redials_ = true;
  } else {
    redial();
  }
}

void Session::redial() {
  redials_ = false;
  shared_.net.retry_connections();
  redial_pause_.start(kRedialPause, [this] {
    if (redials_) redial();
  });
}

void Session::spare_ready() {
  if (std::exchange(has_spare_, true)) return;
  spare.stop();
  watch_errors();  // the other members' CQs are there by now
  SHIFT_EVENT("armed", {{"qp", group.qpn()},
                        {"device", group.context->device->dev.name},
                        {"peer_qp", ends.remote.qpn}});
}

void Session::read_backs_begin(int member) {
  shared_.read_backs.begin(group.context, member);
}

void Session::host_known() {
  offers.host_known();
  paths.host_known();
}

void Session::peer_missing(const char* cause) {
  shared_.machine.feed(*this, {.event = fsm::Event::kNoPeer, .cause = cause});
}

}  // namespace shift::control

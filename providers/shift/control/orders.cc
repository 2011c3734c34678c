#include "control/orders.h"

#include <sys/epoll.h>
#include <unistd.h>

#include "control/sessions.h"
#include "group/context.h"
#include "state/directory.h"
#include "state/order_send.h"
#include "state/orders.h"
#include "util/log.h"

namespace shift::control {

using state::Order;

Orders::~Orders() {
  if (socket_.fd() >= 0) loop_.remove_fd(socket_.fd());
}

void Orders::begin(std::string base, const std::string& socket_path) {
  base_ = std::move(base);
  socket_path_ = socket_path;
  names_read();
  if (socket_path.empty()) return;
  std::string problem;
  if (!socket_.open(socket_path, problem) ||
      !loop_.add_fd(socket_.fd(), EPOLLIN, [this](uint32_t) { listen(); })) {
    SHIFT_WARN("shiftctl cannot give orders to this process: %s", problem.c_str());
  }
}

void Orders::listen() {
  constexpr int kAtOnce = 16;  // the loop has other work, too
  bool is_empty = false, looks = false;
  for (int i = 0; i < kAtOnce && !is_empty; i++) {
    const auto order = socket_.take(is_empty);
    if (!order) continue;
    if (order->kind != Order::Kind::kLook) take(*order);
    looks = looks || order->kind == Order::Kind::kLook;
  }
  if (looks) look();  // once for all that have asked
}

void Orders::take(const Order& order) {
  switch (order.kind) {
    case Order::Kind::kLook:
      return look();
    case Order::Kind::kSuspect:
      return sink_.nic_suspected(order.device);
    case Order::Kind::kMove:
    case Order::Kind::kHome:
      return move(order);
  }
}

void Orders::suspect_tell(const std::string& device) const {
  if (base_.empty()) return;
  const std::string order = state::kOrderSuspect + (" " + device);
  if (order.size() <= state::kOrderMax) (void)state::order_all(base_, socket_path_, order);
}

void Orders::names_read() {
  if (base_.empty()) return;
  std::string problem;
  names_ = state::drained_read(base_, ::geteuid(), problem);
  if (!problem.empty())
    SHIFT_WARN_LIMITED("an order to drain NICs is ignored: %s", problem.c_str());
}

void Orders::look() {
  names_read();
  for (auto& [context, members] : drained_) {
    const uint8_t now = members_of(context);
    if (now != members) drained_set(context, now);
  }
}

uint8_t Orders::members_of(const group::Context* context) const {
  uint8_t members = 0;
  for (int m = 0; m < context->member_count; m++) {
    if (names_.contains(context->name(m))) members |= static_cast<uint8_t>(1u << m);
  }
  return members;
}

void Orders::context_add(group::Context* context) {
  names_read();  // a process that has just opened a device may have missed the word
  drained_[context] = members_of(context);
}

uint8_t Orders::drained(const group::Context* context) const {
  const auto found = drained_.find(const_cast<group::Context*>(context));
  return found == drained_.end() ? 0 : found->second;
}

void Orders::drained_set(group::Context* context, uint8_t members) {
  const uint8_t before = std::exchange(drained_[context], members);
  for (int m = 0; m < context->member_count; m++) {
    if (((before ^ members) >> m & 1) == 0) continue;
    const bool is_drained = (members >> m & 1) != 0;
    SHIFT_INFO("%s is %s", context->name(m),
               is_drained ? "drained: QPs with another path leave it" : "in use again");
  }
  sessions_.for_each_of(context,
                        [members](Session& session) { session.avoidance.drained_set(members); });
  sink_.drained_changed(context);
}

void Orders::session_begin(Session& session) const {
  session.avoidance.drained_set(drained(session.group.context));
}

void Orders::move(const Order& order) {
  sessions_.for_each([&](Session& session) {
    if (session.group.qpn() != order.qpn) return;
    if (order.device != session.group.context->device->dev.name) return;
    if (order.kind == Order::Kind::kMove)
      session.avoidance.move_away();
    else
      session.avoidance.move_home();
  });
}

}  // namespace shift::control

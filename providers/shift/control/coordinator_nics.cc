// Tells the sessions of NICs and addresses that go and come.
#include <algorithm>

#include "control/coordinator.h"
#include "group/context.h"
#include "group/device_events.h"
#include "group/locked.h"
#include "group/port.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::control {

using fsm::Event;
using fsm::State;
using group::Context;
using group::Detector;
using group::Group;
using group::kDefault;

void Coordinator::nic_lost(Context* context, int member, group::Cause cause) {
  int moving = 0;
  uint32_t leaving = 0;
  sessions_.for_each_of(context, [&](Session& session) {
    const Group& group = session.group;
    if (!group::is_protected(group)) return;
    // A QP in RTR loses nothing to a NIC that comes back, and cannot go elsewhere without a peer.
    if (session.search.is_early()) {
      session.lost_early |= group.life.path.member == member;
      return;
    }
    if (group.life.path.member == member) {
      moving += session.control.state == State::kActive;
      leaving++;
      feed(session, {.event = Event::kPathFault, .cause = cause});
    } else if (session.control.state == State::kFencingTargeted &&
               session.round.target().path.follower == member) {
      feed(session, {.event = Event::kTargetUnusable, .cause = cause});
    }
  });
  if (moving > 0) {
    SHIFT_WARN_FEW("%s: %s: %d QP%s move%s away", context->name(member), cause.text, moving,
                   moving == 1 ? "" : "s", moving == 1 ? "s" : "");
  }
  locator_.nic_lost(context, member, cause, leaving);
  members_up_changed(context);
}

void Coordinator::nic_late(Context* context, int member) {
  SHIFT_WARN_FEW("%s has not answered a command for %d ms: no path goes over it until it does",
                 context->name(member), config().command_ms);
  sessions_.for_each_of(context, [&](Session& session) {
    session.paths.nic_late(member);
    session.failing.nic_late(member);
    session.verdict.nic_late(member);
  });
  members_up_changed(context);
}

void Coordinator::nic_back(Context* context, int member) {
  SHIFT_INFO_FEW("%s can be used again", context->name(member));
  net_->retry_connections();
  members_up_changed(context);
}

void Coordinator::members_up_changed(Context* context) {
  const uint8_t up = nics_.up(context);
  reporter_.context_changed(context);
  sessions_.for_each_of(context, [&](Session& session) {
    session.book.own_up_set(up);
    session.book.ready_clean();
    // A peer that cannot believe this end yet keeps nothing but its newest Bind.
    if (!session.search.is_proven()) session.search.send_bind();
    session.send_members();
  });
  pairs_.retry(context);
  sessions_.for_each_of(context, [this](Session& session) {
    session.paths.tend();
    reporter_.touch(session);
  });
}

// Groups whose path uses that address on the member leave the path.
void Coordinator::address_lost(Context* context, int member, const wire::Gid& address,
                               group::Cause cause) {
  sessions_.for_each_of(context, [&](Session& session) {
    const Group& group = session.group;
    if (group.life.path.member != member || session.search.is_early()) return;
    const MemberQp& qp = session.qps[member];
    if ((qp.connected ? qp.address.gid : session.ends.local.gid) != address) return;
    feed(session, {.event = Event::kPathFault, .cause = cause});
  });
}

void Coordinator::addresses_changed(Context* context, int member,
                                    const std::vector<wire::Gid>& gone) {
  // A spare must not send from an address that is gone. The leader makes its connection again, when
  // members_up_changed() has it tend to its paths; a follower tells its leader first.
  sessions_.for_each_of(context, [&](Session& session) {
    if (session.group.life.path.member == member) return;
    MemberQp& qp = session.qps[member];
    if (!qp.connected || std::ranges::find(gone, qp.address.gid) == gone.end()) return;
    if (!session.control.is_leader) return session.offers.lose(member);
    qp.connected = false;
    session.book.ready_drop(qp.connection.path);
  });
  locator_.addresses_changed(context, member);
  for (const wire::Gid& gid : gone) {
    address_lost(context, member, gid, {"the NIC's address is gone", Detector::kAddress});
  }
  // The control channel shall use the new address, too.
  sessions_.for_each_of(context, [](Session& session) {
    if (!session.search.is_proven()) return;
    session.search.send_bind();
    session.search.widen();
  });
  members_up_changed(context);
}

// While the application has no connected QP, and none that is its own on the default NIC, another
// NIC can carry all that it will do.
bool Coordinator::masks_faults(const Context* context) {
  bool masks = false, has_any = false;
  sessions_.for_each_of(context, [&](Session& session) {
    has_any = true;
    masks = masks || group::is_protected(session.group);
  });
  return masks || (!has_any && context->stock_qps == 0 && group::is_backed(*context));
}

// The default's responder met an error that an application caused, mostly a wrong request of the
// peer's application. This breaks the QP, and the flushes that follow are all that this end's
// application sees of the error. As with completions, the error is not believed of a NIC that is
// going: it has itself destroyed the memory regions.
bool Coordinator::request_refused(Context* context, const ibv_async_event& event) {
  Session* refused = nullptr;
  sessions_.for_each_of(context, [&](Session& session) {
    if (session.group.real[kDefault] == event.element.qp) refused = &session;
  });
  if (refused == nullptr) return false;
  if (!group::is_protected(refused->group)) {
    refused->verdict.application(kDefault, "the application's request was refused");
    return false;
  }
  // By the time of the answer the QP may be gone, and another one may lie where it was.
  refused->verdict.want(kDefault,
                        [context, event, group = &refused->group, serial = refused->serial] {
                          group::event_give_of(*context, *group, serial, event);
                        });
  return true;
}

}  // namespace shift::control

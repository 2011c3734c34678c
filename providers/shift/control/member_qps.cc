#include "control/member_qps.h"

#include <utility>

#include "control/jobs.h"
#include "control/nic_watch.h"
#include "group/context.h"
#include "group/member_qp.h"
#include "group/twins.h"
#include "util/config.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

using group::Group;

// The GID that the member's QP uses on the path. On the default, it is the GID that the application
// chose, but for one case: a GID without an IPv4 address fits only peers' GIDs of its own kind, so
// on paths to other NICs, whose GIDs have such an address, the default uses one that has it, too.
// The result is all zeros when the member has no GID: connecting will then find no such address.
wire::Gid MemberQps::own_gid(int member, PathName path, const wire::Gid& peer) const {
  const Group& group = session_.group;
  const bool is_original = path == PathName{group::kDefault, group::kDefault};
  if (member == group::kDefault && (is_original || session_.ends.local.gid.ipv4()))
    return session_.ends.local.gid;
  return nics_.address_of_member(group, member, peer);
}

void MemberQps::make() {
  const int members = session_.group.context->member_count;
  if (session_.group.is_homeless) {
    qps_[group::kDefault].is_asked = true;
    session_.book.own_lacks(group::kDefault);
  }
  for (int member = 0; member < members; member++) {
    if (member == group::kDefault || !group::has_twins_on_demand(*session_.group.context))
      want(member);
  }
}

void MemberQps::want(int member) {
  if (std::exchange(qps_[member].is_asked, true)) return;
  jobs_.run(
      session_, member, [member](Group& g) { return group::member_qp_create(g, member); },
      [member](Session& session, int error) {
        if (error != 0) {
          const Group& group = session.group;
          SHIFT_WARN_LIMITED("qp 0x%x on %s cannot move to %s: no QP there (errno %d)", group.qpn(),
                             group.context->device->dev.name, group.context->name(member), error);
          session.book.own_lacks(member);
          session.qps[member].failed = true;
        } else {
          session.qps[member].made = true;
          // Its CQs may be new, too.
          if (group::has_twins_on_demand(*session.group.context)) session.watch_errors();
        }
        session.offers.qp_made(member);
        session.paths.tend();  // an attempt may have waited for this QP
      });
}

void MemberQps::want_memory() {
  if (SHIFT_PLANT(memory_not_wanted)) return;
  for (int member = 0; member < session_.group.context->member_count; member++)
    if (qps_[member].is_asked) group::twin_regions_want(session_.group, member);
}

// The command thread registers before it connects. So when the path is ready, all is registered
// that there was by then, and the round that takes the path waits for the rest.
void MemberQps::path_wants_memory(int member) {
  const bool is_calm = session_.control.state == fsm::State::kActive;
  if (is_calm && config().register_on == Config::Register::kDemand) return;
  group::twin_regions_want(session_.group, member);
}

bool MemberQps::lacks(int member) const {
  const MemberQp& qp = qps_[member];
  return qp.failed || (member == group::kDefault && session_.group.is_homeless);
}

bool MemberQps::carries(int member, const Connection& connection) const {
  const MemberQp& qp = qps_[member];
  return qp.connected && !qp.busy && qp.connection == connection;
}

void MemberQps::choose_address(int member, PathName path, Chosen then) {
  path_wants_memory(member);
  jobs_.run(
      session_, member,
      [member, gid = own_gid(member, path)](Group& g) {
        Address own;
        own.error = group::member_qp_address(g, member, gid, &own.address);
        return own;
      },
      std::move(then));
}

void MemberQps::connect(int member, const wire::QpAddress& own, const wire::QpAddress& peer,
                        Connected then) {
  jobs_.run(
      session_, member,
      [member, own, peer](Group& g) { return group::member_qp_connect(g, member, own, peer); },
      std::move(then));
}

void MemberQps::choose_and_connect(int member, PathName path, const wire::QpAddress& peer,
                                   Chosen then) {
  path_wants_memory(member);
  jobs_.run(
      session_, member,
      [member, peer, gid = own_gid(member, path, peer.gid)](Group& g) {
        Address own;
        own.error = group::member_qp_address(g, member, gid, &own.address);
        if (own.error == 0) own.error = group::member_qp_connect(g, member, own.address, peer);
        return own;
      },
      std::move(then));
}

}  // namespace shift::control

// Connects, changes and destroys QPs.

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "group/completion.h"
#include "group/ending.h"
#include "group/failing.h"
#include "group/group.h"
#include "group/keys.h"
#include "group/locked.h"
#include "group/member_modify.h"
#include "group/member_qp.h"
#include "group/park.h"
#include "group/peer_gone.h"
#include "group/port.h"
#include "group/shared_queue.h"
#include "group/twins.h"
#include "ops/builder.h"
#include "ops/completion_queues.h"
#include "ops/create_qp.h"
#include "ops/deputy.h"
#include "ops/domains.h"
#include "ops/entry.h"
#include "ops/query_qp.h"
#include "ops/tables.h"
#include "util/backoff.h"
#include "util/log.h"
#include "util/uncancellable.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::Context;
using group::Ends;
using group::Group;
using group::kDefault;
using group::SharedQueue;

// nullopt: this path cannot be protected, since it has no global address.
std::optional<Ends> ends_of(Group* g, const ibv_qp_attr& to_rtr) {
  const ibv_ah_attr& av = to_rtr.ah_attr;
  if (!av.is_global) return std::nullopt;
  const auto own = group::shown_gid(*g->context, g->life.asked.attr.port_num, av.grh.sgid_index);
  if (!own) return std::nullopt;
  return Ends{.local = {wire::Gid::from_verbs(own->gid), g->qpn()},
              .remote = {wire::Gid::from_verbs(av.grh.dgid), to_rtr.dest_qp_num},
              .gid_type = own->gid_type};
}

// Called once the NIC has accepted the ends: when the application asks for RTR again and the NIC
// refuses, a connected QP keeps its names, which the control thread reads without a lock.
void name_ends(Group* g, const Ends& ends) {
  std::lock_guard lock(g->attr_mutex);  // other threads look for users of an address
  g->life.ends = ends;
}

bool is_parked(Group* g) {
  std::scoped_lock lock(g->send.mutex, g->recv.mutex);
  return g->send.route == group::Route::kParked || g->recv.route == group::Route::kParked;
}

// The control thread has forgotten the group, so this thread sees to its end. It waits for a batch
// that another thread of the program builds, as any use of the queue does.
void give_up(Group& g) {
  group::fail(g);
  for (Backoff backoff; !group::batch_is_over(g);) backoff.wait();
}

// Waits for the command threads' jobs for the group, but not for those of a NIC that is late.
// Called after Coordinator::group_forget(), which begins no more jobs.
void await_jobs(const Group& g) {
  for (int member = 0; member < g.context->member_count && g.jobs != 0; member++)
    (void)group::on_nic_and_wait(*g.context, member, [] {});
}

// The application sees from now on what the real QPs say.
void show_truth(Group* g) {
  await_jobs(*g);
  if (send_route(g) == group::Route::kError) return;  // the application sees the error already
  // In the middle of a switch, or when a NIC has refused a receive, no NIC holds the requests; and
  // where an error was held back, the NIC has given a part of their completions already. Only
  // group::fail() flushes those requests.
  if (is_parked(g) || !group::errors_pass(*g, g->life.path.member)) give_up(*g);
}

// The control thread has forgotten the group, and the QP stays as it is. What waits for a key or a
// registration is posted if nothing is missing any more; otherwise the group fails, as nobody would
// post it later (C6).
void bring_waiting(Group* g) {
  if (group::go_on(*g) != 0) give_up(*g);
}

// The application breaks or resets its QP.
void stop_masking(Group* g) {
  coordinator().group_forget(g);
  show_truth(g);
}

// Waits until a member carries the group's data, since the QP that is being shut would refuse what
// its successor accepts. That may take as long as an outage.
int current_member(Group* g) {
  const Uncancellable shield;
  for (;;) {
    const int member = carrying_member(g);
    if (member != group::kNoMember) return member;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// Changes the QP of the member as the application asks. Returns 0 or an errno; nullopt: it is a
// further member, and its NIC is late.
std::optional<int> change_on(Group* g, int member, const ibv_qp_attr& attr, int mask) {
  if (member == kDefault) return group::application_modify(*g, member, attr, mask);
  const auto error = std::make_shared<int>(0);
  const auto change = [error, attr, mask, member, held = group::Held(g)] {
    *error = group::application_modify(*held, member, attr, mask);
  };
  if (!on_command_thread(g, member, change)) return std::nullopt;
  return *error;
}

// The application breaks its QP while that lies on a NIC that is late, and will not wait for the
// flushes of that NIC.
void break_without(Group* g, int member) {
  (void)group::on_nic(*g->context, member, [member, held = group::Held(g)] {
    (void)group::member_qp_to_state(*held, member, IBV_QPS_ERR);
  });
  (void)group::errors_hold(*g, member);  // what the NIC gives later comes too late
  give_up(*g);
}

// Called before the application connects its QP. Receives of the shared queue that moved away while
// the default NIC was broken may still lie on that NIC. False: they do, and the NIC is still
// broken.
bool join_default(Group* g) {
  if (g->srq == nullptr || g->srq_member != group::kNoMember) return true;
  const auto is_clean = std::make_shared<bool>(true);
  const auto cleanse = [held = group::Held(g->srq), is_clean] {
    *is_clean = held->cleanse(kDefault);
  };
  using Waited = group::CommandThreads::Waited;
  if (group::on_nic_and_wait(*g->context, kDefault, cleanse) == Waited::kLate) return false;
  return *is_clean && group::receives_join(*g, kDefault) == SharedQueue::Join::kDone;
}

// Whether the default NIC has lost the address that the application chose.
bool is_gid_lost(const Group& g, const ibv_qp_attr& attr) {
  const auto entry = group::gid_at(g.context->members[kDefault].real, group::kPortNumber,
                                   attr.ah_attr.grh.sgid_index);
  return !entry || wire::Gid::from_verbs(entry->gid) == wire::Gid{};
}

// Whether the NIC may have refused to connect the QP because it is broken itself, or cannot reach
// the peer.
bool blames_path(const Group& g, int error, const ibv_qp_attr& attr) {
  switch (error) {
    case EIO:
    case ENODEV:
    case ENXIO:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
    case ETIMEDOUT:
      return true;
    default:
      // The application's own mistakes are told so, too; and a GID that the NIC has lost.
      return error == EINVAL &&
             (!group::member_port_is_up(*g.context, kDefault) || is_gid_lost(g, attr));
  }
}

// Whether another member can carry the QP from its first request on, since the default NIC has
// refused to connect it.
bool may_begin_elsewhere(const Group& g, int error, const ibv_qp_attr& attr) {
  return blames_path(g, error, attr) && group::is_backed(*g.context);
}

// The QP has no connection on the default NIC: nothing may be posted there. The control thread
// parks the group, or fails it.
void await_parked(Group* g) {
  const Uncancellable shield;
  while (g->life.unconnected && send_route(g) == group::Route::kOnDefault)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

// `is_done`: the default NIC has destroyed or reset the QP. A NIC that is late may do so later.
void leave_cqs(Group* g, bool is_done) {
  const Context::Member& nic = g->context->members[kDefault];
  const bool is_clean = is_done && nic.cleans_cqs && nic.deferred == 0;
  group::purge(*g->send_cq, g, is_clean);
  if (g->recv_cq != g->send_cq) group::purge(*g->recv_cq, g, is_clean);
  group::CqLock lock(*g);
  if (!std::exchange(g->counted_slow, false)) return;
  g->send_cq->slow_groups--;
  if (g->recv_cq != g->send_cq) g->recv_cq->slow_groups--;
}

// RESET gives a fresh QP, which is on the default again, with empty queues and no peer.
int reset_group(Group* g) {
  // The default's QP is not brought to ERR first: its device's event about the last receive would
  // be taken for one of the next connection. The shared queue loses the receives that this QP takes
  // until it is in RESET.
  group::receives_settle(*g, kDefault + 1, g->context->member_count);
  if (const int error = group::member_qp_to_state(*g, kDefault, IBV_QPS_RESET)) {
    // The default NIC is dead. Requests that the application wants to stop may be on their way over
    // another NIC's QP: group::fail() shuts that QP.
    if (send_route(g) != group::Route::kError) give_up(*g);
    const bool is_gone = g->context->members[kDefault].dead || is_default_gone(*g->context, error);
    if (!is_gone || !group::is_backed(*g->context)) {
      group::told_keys_forget(*g);
      return error;
    }
    g->is_homeless = true;
  }
  group::twin_qps_destroy(*g);
  group::told_keys_forget(*g);
  leave_cqs(g, !g->is_homeless);
  group::receives_leave(*g);
  for (Backoff backoff; !group::batch_is_over(*g);)
    backoff.wait();  // a fence may have waited for one
  auto send = lock_queue(g->send);
  auto recv = lock_queue(g->recv);
  group::CqLock lock(*g);
  for (CompletionQueue* cq : {g->send_cq, g->recv_cq}) {
    if (std::find(cq->groups.begin(), cq->groups.end(), g) == cq->groups.end()) {
      cq->groups.push_back(g);
    }
  }
  g->life_begin();
  g->qp.qp_base.state = IBV_QPS_RESET;
  return 0;
}

int reset(Group* g) {
  const int error = reset_group(g);
  if (error == 0 && g->is_homeless) begin_again_elsewhere(*g);
  return error;
}

}  // namespace

int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) noexcept {
  Group* g = Group::from(qp);
  const bool to_state = mask & IBV_QP_STATE;
  if (to_state && (attr->qp_state == IBV_QPS_ERR || attr->qp_state == IBV_QPS_RESET)) {
    stop_masking(g);
  }
  if (to_state && attr->qp_state == IBV_QPS_RESET) return reset(g);
  const bool joins = to_state && attr->qp_state == IBV_QPS_RTR && !g->is_homeless;
  const bool is_barred = joins && !join_default(g);
  const bool to_rtr = to_state && attr->qp_state == IBV_QPS_RTR && (mask & IBV_QP_AV);
  const auto ends = to_rtr && !g->let_go ? ends_of(g, *attr) : std::nullopt;
  // The patience of the QP's NIC is set at RTS, while the peer itself may take longer to show up.
  // So the layer asks for the peer now, before anything can arrive or fail.
  const bool peer_present =
      ends && coordinator().peer_present(g->context, ends->local.gid, ends->remote.gid);
  const auto begin_unconnected = [g, attr, mask] {
    group::application_note(*g, *attr, mask);
    g->life.unconnected = true;
  };
  if (is_barred) {
    if (!peer_present || !group::is_backed(*g->context)) return EAGAIN;
    begin_unconnected();
  }
  while (!is_barred) {
    const uint32_t departures = g->life.path.departures;
    // A QP of a deputy waits for no path before it can send: nobody makes one until then.
    const bool begins = g->life.unconnected && g->life.path.member == kDefault;
    const int member = begins ? kDefault : current_member(g);
    const auto error = change_on(g, member, *attr, mask);
    if (error == 0) break;
    if (!error && to_state && attr->qp_state == IBV_QPS_ERR) {
      break_without(g, member);
      break;
    }
    if (peer_present && error && member == kDefault && may_begin_elsewhere(*g, *error, *attr)) {
      begin_unconnected();
      break;
    }
    if (to_state && attr->qp_state == IBV_QPS_ERR && is_default_gone(*g->context, *error) &&
        group::is_backed(*g->context)) {
      if (send_route(g) != group::Route::kError) give_up(*g);
      break;
    }
    // A QP that the group has left meanwhile is in ERR, and refuses what its successor accepts.
    if (g->life.path.departures == departures) {
      if (g->life.is_alone) bring_waiting(g);
      return error.value_or(EIO);
    }
  }
  if (!to_state) return 0;
  qp->state = attr->qp_state;
  if (attr->qp_state == IBV_QPS_ERR) group::told_keys_forget(*g);
  if (attr->qp_state == IBV_QPS_ERR && send_route(g) == group::Route::kOnPath &&
      group::flush_waiting(*g) != 0) {
    give_up(*g);
  }
  if (to_rtr) {
    g->life.peer_present = peer_present;
    build_aside(*g, ends && ends->local == ends->remote);
    if (!ends || g->let_go) return 0;
    name_ends(g, *ends);
    coordinator().group_add(g);
  } else if (attr->qp_state == IBV_QPS_RTS && (mask & IBV_QP_SQ_PSN)) {
    group::count_packets(*g);
    coordinator().group_sends(g);
    await_parked(g);
  }
  return 0;
}

int destroy_qp(ibv_qp* qp) noexcept {
  Group* g = Group::from(qp);
  // The QP's device will raise an event about the last receive, for which the application did not
  // ask.
  if (g->srq != nullptr && !g->context->events.keep_back(qp)) return ENOMEM;
  const bool is_ending = group::ending_begin(*g);
  if (!is_ending) coordinator().group_forget(g);
  // The QPs on further members take no receives before the group leaves its default path.
  group::receives_settle(*g, kDefault, is_ending ? kDefault + 1 : g->context->member_count);
  const bool has_tasks = is_ending ? group::is_default_at_work(*g) : g->jobs != 0;
  const int error = group::default_destroy(*g->context, has_tasks, [held = group::Held(g)] {
    return stock->destroy_qp(held->real[kDefault]);
  });
  if (error != 0 && !g->context->members[kDefault].dead) {
    if (is_ending) {
      coordinator().group_forget(g);
      group::ending_undo(*g);
    }
    show_truth(g);  // the QP stays, on whichever member it is
    bring_waiting(g);
    group::inspect(*g->recv_cq);
    g->context->events.let_come(qp);
    return error;
  }
  if (!is_ending) group::twin_qps_destroy(*g);
  group::told_keys_forget(*g);
  {
    std::scoped_lock lock(g->context->event_mutex, g->context->mutex);
    std::erase(g->context->groups, g);
  }
  g->context->events.forget(qp);
  leave_cqs(g, error == 0);
  {
    std::lock_guard lock(g->context->mutex);
    g->context->members[kDefault].qps.erase(g->qpn(), &g->counters);
  }
  if (g->srq != nullptr) {
    group::receives_leave(*g);
    g->srq->users--;
    std::lock_guard lock(g->recv_cq->mutex);
    g->recv_cq->slow_groups--;
  }
  if (g->pd->base != nullptr) give_back_released(*g->pd);
  cq_release(*g->send_cq, g->reserved_sends);
  cq_release(*g->recv_cq, g->reserved_receives);
  g->send_cq->users--;
  g->recv_cq->users--;
  g->pd->users--;
  // The batch that this thread was building ends with the QP.
  if (group::builds_on(&g->send)) group::Bias::leave_building(group::tls_slot);
  if (is_ending) coordinator().group_ended(g);
  group::let_go(g);
  return 0;
}

ibv_qp* real_qp(ibv_qp* qp) noexcept {
  return Group::from(qp)->real[kDefault];
}

namespace {

bool is_on_default(Group* g) {
  std::lock_guard send(g->send.mutex);
  return g->send.route == group::Route::kOnDefault && !g->life.path.off_default;
}

}  // namespace

bool let_go(ibv_qp* qp) noexcept {
  Group* g = Group::from(qp);
  if (g->let_go) return true;
  if (!is_on_default(g)) return false;
  stop_masking(g);
  g->let_go = is_on_default(g);  // a round may have begun to leave the default
  if (g->let_go) group::told_keys_forget(*g);
  return g->let_go;
}

// The layer does not see the completions of the CQ's QPs any more, on which their protection rests.
bool let_go(ibv_cq* cq) noexcept try {
  CompletionQueue* queue = CompletionQueue::from(cq);
  std::vector<Group*> groups;
  {
    std::lock_guard lock(queue->mutex);
    groups = queue->groups;
    queue->let_go = true;  // for groups that join meanwhile: cq_join() reads it
  }
  // Either all groups are let go of or none, as far as can be known beforehand.
  if (std::ranges::all_of(groups, is_on_default) &&
      std::ranges::all_of(groups, [](Group* g) { return let_go(g->handle()); })) {
    return true;
  }
  std::lock_guard lock(queue->mutex);
  queue->let_go = false;
  return false;
} catch (const std::bad_alloc&) {
  return false;
}

void on_peer_gone(void (*call)(ibv_qp*)) noexcept {
  group::peer_gone = call;
}

int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) noexcept {
  return 0;
}
// What the two NICs agree on beyond the standard holds for the application's own connection, and
// not for the connections that the layer makes. The modes exact and auto count packets by the
// standard's rules.
int query_ece(ibv_qp* qp, ibv_ece* ece) noexcept {
  Group* g = Group::from(qp);
  return g->asks_responder() ? EOPNOTSUPP : stock->query_ece(g->real[kDefault], ece);
}
int set_ece(ibv_qp* qp, ibv_ece* ece) noexcept {
  Group* g = Group::from(qp);
  return g->asks_responder() ? EOPNOTSUPP : stock->set_ece(g->real[kDefault], ece);
}

// One NIC keeps a rate, which would be lost on the way to another NIC.
int modify_qp_rate_limit(ibv_qp* qp, ibv_qp_rate_limit_attr*) noexcept {
  SHIFT_WARN_LIMITED("qp 0x%x: rate limits are not supported on a group of NICs",
                     Group::from(qp)->qpn());
  return EOPNOTSUPP;
}

// Address handles are the default NIC's own; this call only finds its PD.
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) noexcept {
  if (needs_deputy(*group::Context::from(pd->context))) {
    errno = EIO;
    return nullptr;
  }
  return stock->create_ah(virtual_pd(pd)->real[kDefault], attr);
}
int destroy_ah(ibv_ah*) noexcept {
  return EOPNOTSUPP;
}
// RC QPs have no multicast.
int attach_mcast(ibv_qp*, const ibv_gid*, uint16_t) noexcept {
  return EINVAL;
}
int detach_mcast(ibv_qp*, const ibv_gid*, uint16_t) noexcept {
  return EINVAL;
}

}  // namespace shift::ops

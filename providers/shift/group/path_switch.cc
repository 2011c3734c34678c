// Stopping and fencing: the half of a switch that shuts the old path.
#include "group/path_switch.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>

#include "group/below.h"
#include "group/completion.h"
#include "group/keys.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {
namespace {

using Clock = std::chrono::steady_clock;

// The distinct CQs of a batch.
std::vector<CompletionQueue*> cqs_of(std::span<Group* const> groups) {
  std::vector<CompletionQueue*> cqs;
  for (Group* group : groups) {
    cqs.push_back(group->send_cq);
    cqs.push_back(group->recv_cq);
  }
  std::sort(cqs.begin(), cqs.end());
  cqs.erase(std::unique(cqs.begin(), cqs.end()), cqs.end());
  return cqs;
}

// Posts the two markers, as far as the queues have room for them.
struct Markers {
  bool send = false, recv = false;
};

void post_markers(Group& group, Markers& markers) {
  ibv_qp* real = group.real[kDefault];
  if (!markers.send) {
    ibv_send_wr wr{}, *bad;
    wr.wr_id = group.marker_tag;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    markers.send = real->context->ops.post_send(real, &wr, &bad) == 0;
  }
  if (!markers.recv) {
    ibv_recv_wr wr{}, *bad;
    wr.wr_id = group.marker_tag + 1;
    markers.recv = real->context->ops.post_recv(real, &wr, &bad) == 0;
  }
}

bool has_sent(Group& group) {
  std::lock_guard lock(group.attr_mutex);
  return group.attr_mask & IBV_QP_SQ_PSN;
}

bool is_device_gone(int error) {
  return error == EIO || error == ENODEV;
}

}  // namespace

void stop_posting(std::span<Group* const> groups) {
  std::vector<const void*> queues;
  for (Group* group : groups) {
    group->off_default = true;
    {
      std::lock_guard lock(group->send.mutex);
      group->send.route = Route::kParked;  // from here on nobody adopts the bias again
      group->send.bias.revoke_begin();
    }
    {
      std::lock_guard lock(group->recv.mutex);
      group->recv.route = Route::kParked;
      group->recv.bias.revoke_begin();
    }
    queues.push_back(&group->send);
    queues.push_back(&group->recv);
  }
  const auto cqs = cqs_of(groups);
  for (CompletionQueue* cq : cqs) {
    std::lock_guard lock(cq->mutex);
    cq->slow_groups +=
        static_cast<int>(std::count_if(groups.begin(), groups.end(), [&](const Group* g) {
          return g->send_cq == cq || g->recv_cq == cq;
        }));
    cq->bias.revoke_begin();
    queues.push_back(cq);
  }
  // One barrier for the whole batch: a thousand QPs cost what one costs.
  wait_until_left(queues.data(), queues.size());
  for (Group* group : groups) {
    // Before the queues are opened to those who park.
    {
      std::lock_guard lock(group->send.mutex);
      group->send.posted_to_default = group->send.journal.head();
      group->send.bias.revoke_end();
    }
    std::lock_guard lock(group->recv.mutex);
    group->recv.posted_to_default = group->recv.journal.head();
    group->recv.bias.revoke_end();
  }
  for (CompletionQueue* cq : cqs) cq->bias.revoke_end();
}

std::vector<bool> fence(std::span<Group* const> groups, Clock::time_point deadline) {
  std::vector<bool> proven(groups.size(), false);
  std::vector<bool> shut(groups.size(), false), passes(groups.size(), false);
  std::vector<Markers> markers(groups.size());
  const auto cqs = cqs_of(groups);
  if (SHIFT_PLANT(no_fence)) {
    for (CompletionQueue* cq : cqs) {
      std::lock_guard lock(cq->mutex);
      collect(*cq);
    }
    return std::vector<bool>(groups.size(), true);
  }

  for (size_t i = 0; i < groups.size(); i++) {
    Group& group = *groups[i];
    {
      CqLock lock(group);
      // The application has been given an error of its own in the meantime: it has seen what cannot
      // be taken back, and its completions are not counted.
      passes[i] = group.accept[kDefault] == Accept::kPass;
      group.switching = !passes[i];
    }
    if (passes[i]) continue;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    const int error = below->modify_qp(group.real[kDefault], &attr, IBV_QP_STATE);
    shut[i] = error == 0;
    if (is_device_gone(error)) group.context->dead[kDefault].store(true);
    if (error != 0) SHIFT_DEBUG("qp 0x%x: default QP to ERR: errno %d", group.qpn(), error);
    // A QP that never reached RTS has sent nothing, and providers refuse the marker.
    markers[i].send = group.cap.max_send_wr == 0 || !has_sent(group);
    markers[i].recv = group.cap.max_recv_wr == 0;
    group.drained[0] = markers[i].send;
    group.drained[1] = markers[i].recv;
  }

  for (;;) {
    size_t open = 0;
    for (size_t i = 0; i < groups.size(); i++) {
      if (shut[i] && !proven[i]) post_markers(*groups[i], markers[i]);
    }
    // Read before the CQs are emptied: a dead device writes no CQE after it reported its death, so
    // what is collected now is all there will ever be.
    std::vector<bool> dead(groups.size());
    for (size_t i = 0; i < groups.size(); i++) dead[i] = groups[i]->context->dead[kDefault].load();
    for (CompletionQueue* cq : cqs) {
      std::lock_guard lock(cq->mutex);
      collect(*cq);
      signal_side(*cq);
    }
    for (size_t i = 0; i < groups.size(); i++) {
      Group& group = *groups[i];
      if (proven[i] || passes[i]) continue;
      proven[i] = dead[i] || (group.drained[0] && group.drained[1]);
      open += !proven[i];
    }
    if (open == 0 || Clock::now() >= deadline) break;
    sched_yield();
  }

  for (size_t i = 0; i < groups.size(); i++) {
    Group& group = *groups[i];
    if (passes[i]) continue;
    if (!proven[i]) {
      SHIFT_INFO("qp 0x%x: fence not proven: ERR %s, send queue %s, receive queue %s", group.qpn(),
                 shut[i] ? "entered" : "refused",
                 group.drained[0]  ? "drained"
                 : markers[i].send ? "not drained"
                                   : "full",
                 group.drained[1]  ? "drained"
                 : markers[i].recv ? "not drained"
                                   : "full");
    }
    CqLock lock(group);
    // Whatever the old path still gives belongs to an old epoch (C8).
    group.accept[kDefault] = Accept::kDrop;
    group.switching = false;
  }
  return proven;
}

}  // namespace shift::group

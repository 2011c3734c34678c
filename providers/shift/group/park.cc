#include "group/park.h"

#include <algorithm>
#include <utility>

#include "group/group.h"

namespace shift::group {

std::vector<CompletionQueue*> cqs_of(std::span<Group* const> groups) {
  std::vector<CompletionQueue*> cqs;
  for (Group* group : groups) {
    if (group == nullptr) continue;
    cqs.push_back(group->send_cq);
    cqs.push_back(group->recv_cq);
  }
  std::sort(cqs.begin(), cqs.end());
  cqs.erase(std::unique(cqs.begin(), cqs.end()), cqs.end());
  return cqs;
}

namespace {

// The caller holds the CQ's mutex.
void count_slow(CompletionQueue& cq, std::span<Group* const> groups) {
  for (Group* group : groups) {
    if (!group->counted_slow && (group->send_cq == &cq || group->recv_cq == &cq)) cq.slow_groups++;
  }
}

// Parks the groups whose send queue no thread is building a batch on in the slow way, and returns
// the others. A thread that builds such a batch holds the mutex, and may want another of these
// queues before it ends the batch. That queue must not be barred while this thread waits for the
// mutex.
std::vector<Group*> park_some(std::span<Group* const> groups) {
  std::vector<Group*> hot, later;
  for (Group* group : groups) {
    std::unique_lock send(group->send.mutex, std::try_to_lock);
    if (!send.owns_lock()) {
      if (!hot.empty() || group != groups.back()) {
        later.push_back(group);
        continue;
      }
      send.lock();  // no queue is barred yet
    }
    group->life.path.off_default = true;
    group->life.path.departures++;
    std::lock_guard recv(group->recv.mutex);
    // From here on no thread becomes the owner again.
    const bool was_hot = group->send.route == Route::kOnDefault;
    if (group->send.route != Route::kError) group->send.route = Route::kParked;
    if (group->recv.route != Route::kError) group->recv.route = Route::kParked;
    if (!was_hot) continue;
    hot.push_back(group);
    group->send.bias.revoke_begin();
    group->recv.bias.revoke_begin();
  }
  if (hot.empty()) return later;
  std::vector<const void*> queues;
  for (Group* group : hot) {
    queues.push_back(&group->send);
    queues.push_back(&group->recv);
  }
  const auto cqs = cqs_of(hot);
  for (CompletionQueue* cq : cqs) {
    std::lock_guard lock(cq->mutex);
    count_slow(*cq, hot);
    cq->bias.revoke_begin();
    queues.push_back(cq);
  }
  const size_t first_cq = 2 * hot.size();
  // There is one barrier for the whole batch, so a thousand QPs cost what one QP costs.
  wait_until_left(queues.data(), queues.size(), [&](size_t i) {
    // Notes where the hot path stopped, before the queue is opened for posts that park.
    if (i >= first_cq) {
      cqs[i - first_cq]->bias.revoke_end();
    } else if (i % 2 == 0) {
      SendQueue& send = hot[i / 2]->send;
      std::lock_guard lock(send.mutex);
      send.posted = send.journal.head();
      send.bias.revoke_end();
    } else {
      RecvQueue& recv = hot[i / 2]->recv;
      std::lock_guard lock(recv.mutex);
      recv.posted = recv.journal.head();
      recv.bias.revoke_end();
    }
  });
  for (Group* group : hot) {
    CqLock lock(*group);
    group->counted_slow = true;
  }
  return later;
}

}  // namespace

void park(std::span<Group* const> groups) {
  std::vector<Group*> rest(groups.begin(), groups.end());
  while (!rest.empty()) rest = park_some(rest);
}

void settle(Group& group) {
  if (group.life.path.member != kDefault || group.life.path.peer_member != kDefault) return;
  if (group.send.route != Route::kOnPath || group.send.posted != group.send.journal.head()) return;
  if (read_back_owed(group)) return;
  std::lock_guard recv(group.recv.mutex);
  if (group.recv.route != Route::kOnPath) return;
  CqLock lock(group);
  if (!group.life.opcode_of_signaled.empty() || group.life.markers.under_way != 0) return;
  group.send.route = Route::kOnDefault;
  group.recv.route = Route::kOnDefault;
  group.life.path.off_default = false;
  if (!std::exchange(group.counted_slow, false)) return;
  group.send_cq->slow_groups--;
  if (group.recv_cq != group.send_cq) group.recv_cq->slow_groups--;
}

}  // namespace shift::group

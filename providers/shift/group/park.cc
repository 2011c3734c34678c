#include "group/park.h"

#include <algorithm>
#include <utility>

#include "group/failing.h"
#include "group/group.h"
#include "util/planted.h"

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

// How many of the groups come to each of the CQs that are not counted there yet. The CQs are
// sorted.
std::vector<int> uncounted(const std::vector<CompletionQueue*>& cqs,
                           std::span<Group* const> groups) {
  std::vector<int> counts(cqs.size());
  const auto count = [&](const CompletionQueue* cq) {
    counts[static_cast<size_t>(std::ranges::lower_bound(cqs, cq) - cqs.begin())]++;
  };
  for (const Group* group : groups) {
    if (group->counted_slow) continue;
    count(group->send_cq);
    if (group->recv_cq != group->send_cq) count(group->recv_cq);
  }
  return counts;
}

// Takes both queues from their owners; no thread becomes the owner again. The caller holds their
// mutexes.
void revoke(Group& group, std::vector<const void*>& queues) {
  group.send.bias.revoke_begin();
  group.send.is_closing = true;
  group.recv.bias.revoke_begin();
  queues.insert(queues.end(), {&group.send, &group.recv});
}

// After revoke() of all these groups' queues: waits for the sections that still run on them and on
// their CQs.
void await_sections(std::span<Group* const> hot, std::vector<const void*>& queues) {
  const auto cqs = cqs_of(hot);
  const auto counts = uncounted(cqs, hot);
  for (size_t i = 0; i < cqs.size(); i++) {
    std::lock_guard lock(cqs[i]->mutex);
    cqs[i]->slow_groups += counts[i];
    cqs[i]->bias.revoke_begin();
    queues.push_back(cqs[i]);
  }
  // There is one barrier for the whole batch, so a thousand QPs cost what one QP costs.
  wait_until_left(queues.data(), queues.size());
  for (CompletionQueue* cq : cqs) cq->bias.revoke_end();
  for (Group* group : hot) {
    {
      // Notes where the hot path stopped, before the queue is opened for posts that park.
      std::lock_guard lock(group->recv.mutex);
      group->recv.posted = group->recv.journal.head();
      group->recv.journal.take_in(group->reader, notifications_received(*group));
      group->recv.bias.revoke_end();
    }
    (void)batch_is_over(*group);
    CqLock lock(*group);
    group->counted_slow = true;
  }
}

// The caller holds the mutexes of both queues and both CQs.
void hot_path_open(Group& group) {
  group.send.route = Route::kOnDefault;
  group.recv.route = Route::kOnDefault;
  group.life.path.off_default = false;
  group.send.journal.note_again();
  group.recv.journal.note_again();
  if (!std::exchange(group.counted_slow, false)) return;
  group.send_cq->slow_groups--;
  if (group.recv_cq != group.send_cq) group.recv_cq->slow_groups--;
}

}  // namespace

void park(std::span<Group* const> groups) {
  std::vector<Group*> hot;
  std::vector<const void*> queues;
  for (Group* group : groups) {
    std::lock_guard send(group->send.mutex);
    if (group->is_ending && !SHIFT_PLANT(ending_parked)) continue;
    group->life.path.off_default = true;
    group->life.path.departures++;
    std::lock_guard recv(group->recv.mutex);
    const bool was_hot = group->send.route == Route::kOnDefault;
    if (group->send.route != Route::kError) group->send.route = Route::kParked;
    if (group->recv.route != Route::kError) group->recv.route = Route::kParked;
    if (!was_hot) continue;
    hot.push_back(group);
    revoke(*group, queues);
  }
  if (!hot.empty()) await_sections(hot, queues);
}

bool park_sends(Group& group) {
  std::vector<const void*> queues;
  {
    std::lock_guard send(group.send.mutex);
    if (group.is_ending) return false;
    if (group.send.route == Route::kOnPath) group.send.route = Route::kParked;
    if (group.send.route != Route::kOnDefault) return true;
    if (is_built_on(&group.send)) return false;
    std::lock_guard recv(group.recv.mutex);
    group.life.path.off_default = true;
    group.send.route = Route::kParked;
    group.recv.route = Route::kOnPath;
    revoke(group, queues);
  }
  Group* const one = &group;
  await_sections({&one, 1}, queues);
  if (batch_is_over(group)) return true;
  // A thread has begun a batch meanwhile. Nobody else could use the send queue since, so all is as
  // it was.
  std::lock_guard send(group.send.mutex);
  std::lock_guard recv(group.recv.mutex);
  CqLock lock(group);
  group.send.is_closing = false;
  group.send.bias.revoke_end();
  hot_path_open(group);
  return false;
}

bool batch_is_over(Group& group) {
  SendQueue& send = group.send;
  std::lock_guard lock(send.mutex);
  if (!send.is_closing) return true;
  if (is_built_on(&send) && !SHIFT_PLANT(open_batch_ignored)) return false;
  send.posted = send.journal.head();
  send.journal.take_in(group.reader, static_cast<uint32_t>(group.counters.done[0]));
  fail_batch(group);
  send.is_closing = false;
  send.bias.revoke_end();
  return true;
}

void settle(Group& group) {
  if (group.life.path.member != kDefault || group.life.path.peer_member != kDefault) return;
  if (group.send.route != Route::kOnPath || group.send.posted != group.send.journal.head()) return;
  if (read_back_owed(group)) return;
  std::lock_guard recv(group.recv.mutex);
  if (group.recv.route != Route::kOnPath) return;
  CqLock lock(group);
  if (!group.life.opcode_of_signaled.empty() || group.life.markers.under_way != 0) return;
  hot_path_open(group);
}

}  // namespace shift::group

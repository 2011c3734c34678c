#include "group/locked.h"

#include <algorithm>

#include "group/completion.h"
#include "group/park.h"
#include "group/replay.h"
#include "group/stock.h"

namespace shift::group {

StartPsns start_psns(Group& group) {
  std::lock_guard lock(group.attr_mutex);
  return {(group.life.asked.mask & IBV_QP_SQ_PSN) != 0, group.life.asked.attr.sq_psn,
          group.life.asked.attr.rq_psn};
}

uint64_t receives_end(Group& group) {
  std::lock_guard lock(group.recv.mutex);
  return group.recv.journal.head();
}

namespace {

// The caller holds send.mutex.
uint64_t first_waiting(const Group& group) {
  const auto done = static_cast<uint32_t>(group.counters.done[0]);
  return std::max(group.send.journal.first_incomplete(done), group.send.drained_to);
}

}  // namespace

bool sends_outstanding(Group& group, bool parked) {
  std::lock_guard lock(group.send.mutex);
  return first_waiting(group) < (parked ? group.send.journal.head() : group.send.posted);
}

Waiting sends_waiting(Group& group) {
  std::lock_guard lock(group.send.mutex);
  return {first_waiting(group), group.send.journal.head()};
}

int go_on(Group& group) {
  {
    std::lock_guard lock(group.recv.mutex);
    const bool is_on_path = group.recv.route == Route::kOnPath;
    if (const int error = is_on_path ? pump_receives(group) : 0) return error;
  }
  std::lock_guard lock(group.send.mutex);
  if (group.send.route != Route::kOnPath) return 0;
  const int error = pump(group);
  settle(group);
  return error;
}

int flush_waiting(Group& group) {
  {
    CqLock lock(group);
    group.life.errors.members[group.life.path.member].fault_reported = true;  // not reported again
  }
  return go_on(group);
}

void remote_keys_add(Group& group, int member, const std::vector<wire::KeyPair>& keys) {
  std::lock_guard lock(group.send.mutex);
  auto& known = group.life.remote_keys[member];
  for (const wire::KeyPair& pair : keys) {
    if (pair.found) known[pair.rkey] = pair.new_rkey;
  }
}

void remote_keys_forget(Group& group) {
  std::lock_guard lock(group.send.mutex);
  for (auto& known : group.life.remote_keys) known.clear();
}

void remote_keys_forget(Group& group, const std::vector<uint32_t>& rkeys) {
  std::lock_guard lock(group.send.mutex);
  for (auto& known : group.life.remote_keys) {
    for (uint32_t rkey : rkeys) known.erase(rkey);
  }
}

void original_error_forget(Group& group) {
  CqLock lock(group);
  group.life.errors.original = {};
}

void original_error_suggest(Group& group, ibv_wc_status status, uint32_t vendor_error) {
  CqLock lock(group);
  ibv_wc& original = group.life.errors.original;
  if (original.status != IBV_WC_SUCCESS) return;
  original.status = status;
  original.vendor_err = vendor_error;
}

}  // namespace shift::group

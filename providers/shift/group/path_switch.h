// The steps of leaving a path, each for one group or a batch of them. Run on the control thread in
// the order that fsm/ says; every function is bounded. They know verbs and the virtual objects, and
// nothing of peers or messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "group/objects.h"

namespace shift::group {

// Bars the hot paths of these groups: from the return on, every post is parked in the journal.
void stop_posting(std::span<Group* const> groups);

// Shuts the old path: default QPs to ERR, then drains their CQs until the markers posted behind
// everything else have come out. Returns per group whether the fence is proven.
std::vector<bool> fence(std::span<Group* const> groups,
                        std::chrono::steady_clock::time_point deadline);

// Number of notifications the group has received (valid after the fence).
inline uint64_t notifications_received(const Group& group) {
  return group.counters.done[1];
}

// Puts the receives that were not consumed on the backup QP and lets later ones follow. False when
// one could not be posted.
[[nodiscard]] bool repost_receives(Group& group, std::chrono::steady_clock::time_point deadline);

// What the replay will need: distinct rkeys, in posting order, that are not known yet. The peer's
// counter must be in group.peer_received.
std::vector<uint32_t> rkeys_missing(Group& group);
// Further rkeys that the group named lately and is likely to name again: asking for them along with
// the others spares later requests the wait. Unlike the missing ones they may be unknown by now.
std::vector<uint32_t> rkeys_recent(Group& group);

// Nothing of the plan is carried out when `refusal` is set.
struct ReplayResult {
  const char* refusal = nullptr;
  uint32_t completed = 0;  // proven executed by the peer's counter
  uint32_t posted = 0;     // posted again
};
// Completes what the peer's counter proves executed, posts the rest on the backup in order.
[[nodiscard]] ReplayResult replay(Group& group, uint64_t peer_received,
                                  std::chrono::steady_clock::time_point deadline);

// Posts parked WRs on the backup as far as keys are known. Caller holds send.mutex. Returns 0, or
// the errno of the backup's post.
int pump_backup(Group& group);

// Gives up: every WR that is not completed gets an error completion, the first one the original
// error; later posts are flushed. Both QPs go to ERR, so that nothing is written any more.
void fail(Group& group);

// Adds flush completions for sends or receives posted after fail(). Caller holds the queue's mutex.
void flush_send(Group& group, uint64_t position);
void flush_recv(Group& group, uint64_t position);

}  // namespace shift::group

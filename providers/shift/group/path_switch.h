// The steps of leaving a path and going on with another, each for one group or a batch of them. Run
// on the control thread in the order that fsm/ says; every function is bounded. They know verbs and
// the virtual objects, and nothing of peers or messages.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <vector>

#include "group/group.h"

namespace shift::group {

using Clock = std::chrono::steady_clock;

// Bars the hot paths of these groups: from the return on, every post is parked in the journal.
void park(std::span<Group* const> groups);

// The queues that the groups' completions come to, each once; null groups have none.
std::vector<CompletionQueue*> cqs_of(std::span<Group* const> groups);

// For the way back, off the default path: parks what is sent, while receives go on being posted (a
// peer that finds none could never drain). Then a marker follows what is under way.
void park_sends(Group& group);
// Whether everything that was posted has completed. Tries to post the marker until there is room.
[[nodiscard]] bool is_drained(Group& group);
// Posts what was parked on the path we are committed to. As pump().
[[nodiscard]] int unpark(Group& group);

// Shuts the paths that a batch of groups is committed to: their QPs to ERR, then drains the CQs
// until the markers posted behind everything else have come out. Groups must be parked.
class Fence {
 public:
  // `patience`: how long the NIC may take. Only time in which it is looked at counts: what setting
  // the QPs to ERR takes does not, nor what this thread is kept from running.
  Fence(std::vector<Group*> groups, std::chrono::nanoseconds patience);

  // Polls once; true when every group is decided.
  [[nodiscard]] bool step(Clock::time_point now);
  // The group is about to be destroyed.
  void forget(const Group* group);

  enum class Result : uint8_t { kOpen, kProven, kNotProven };
  struct Entry {
    Group* group;  // null: forgotten
    int member;
    Result result = Result::kOpen;
    bool shut = false;                                     // ERR was accepted
    bool stopped = false;                                  // RESET has been between
    bool marked_send = false, marked_recv = false;         // markers posted, or none is needed
    Clock::time_point urge_at = Clock::time_point::min();  // when ERR is asked for again
    // The next PSN that our responder expected, if the peer asks and the NIC still answers.
    std::optional<uint32_t> responder{};
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void begin(Entry& entry);
  void post_markers(Entry& entry);
  void urge(Entry& entry, Clock::time_point now);
  static bool all_taken(Entry& entry);
  void end(Entry& entry, Result result);

  std::vector<Entry> entries_;
  std::chrono::nanoseconds patience_;  // what is left of it
  std::optional<Clock::time_point> last_step_{};
};

// Number of notifications the group has received (valid after the fence).
inline uint64_t notifications_received(const Group& group) {
  return group.counters.done[1];
}

// Commits a fenced group to a path: receives that were not consumed go on the member's QP, and
// later ones follow.
enum class Commit : uint8_t { kDone, kKeyMissing, kUnusable };
[[nodiscard]] Commit commit(Group& group, int member, int peer_member, Clock::time_point deadline);

// What the replay will need: distinct rkeys, in posting order, that are not known yet. The peer's
// word must be in group.life.control.peer_received and peer_responder.
std::vector<uint32_t> rkeys_missing(Group& group);
// Further rkeys that the group named lately and is likely to name again: asking for them along with
// the others spares later requests the wait. Unlike the missing ones they may be unknown by now.
std::vector<uint32_t> rkeys_recent(Group& group);

struct ReplayResult {
  const char* refusal = nullptr;  // it must not or cannot be replayed, on any path
  bool path_broken = false;       // a post failed on the way
  uint32_t completed = 0;         // proven executed by the peer's word
  uint32_t posted = 0;            // posted again
  uint32_t skipped = 0;           // packets left out at the beginning of the first of these
};
// Completes what the peer's word proves executed, posts the rest on the committed path in order.
// In the mode exact, group.life.control.peer_responder is a part of that word.
[[nodiscard]] ReplayResult replay(Group& group, uint64_t peer_received, Clock::time_point deadline);

// The next request to post names a region that is still being registered with the path's NIC.
bool waits_for_registration(Group& group);

// Whether another path may take what a NIC refused with this errno: its device is going, or its
// queue is full. Everything else is the request's doing, and no path would take it. Some drivers
// negate it.
inline bool post_blames_path(int error) {
  const int reason = std::abs(error);
  return reason == EIO || reason == ENODEV || reason == ENOMEM;
}

// Posts parked WRs on the committed path as far as keys are known. Caller holds send.mutex. Returns
// 0, the errno of the post, or ENOKEY: a request names memory that is not registered there.
int pump(Group& group);
// Back on the hot path, if the group is on its default path with nothing special under way. Caller
// holds send.mutex.
void settle(Group& group);

// Gives up: every WR that is not completed gets an error completion, the first one the original
// error; later posts are flushed. All QPs go to ERR, so that nothing is written any more.
void fail(Group& group);

// Adds flush completions for sends or receives posted after fail(). Caller holds the queue's mutex.
void flush_send(Group& group, uint64_t position);
void flush_recv(Group& group, uint64_t position);

}  // namespace shift::group

// Proves that the old path will neither move nor report anything any more.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace shift::group {

struct Group;

using Clock = std::chrono::steady_clock;

// Shuts the paths that a batch of groups is committed to: brings their QPs to ERR, and then drains
// the CQs until the markers have come out that were posted after everything else. The groups must
// be parked.
class Fence {
 public:
  // `patience`: how long the NIC may take. Only time during which the fence polls it counts:
  // neither the time that it takes to set the QPs to ERR, nor time in which this thread could not
  // run.
  Fence(std::vector<Group*> groups, std::chrono::nanoseconds patience);

  // Polls once; true when the fence has decided on every group.
  [[nodiscard]] bool step(Clock::time_point now);
  // Called when the group is about to be destroyed.
  void forget(const Group* group);

  enum class Result : uint8_t { kOpen, kProven, kNotProven };
  struct Entry {
    Group* group;  // null: the group is forgotten
    int member;
    Result result = Result::kOpen;
    bool shut = false;                                     // the NIC has accepted ERR
    bool stopped = false;                                  // the QP has been in RESET since
    bool marked_send = false, marked_recv = false;         // markers posted, or none is needed
    Clock::time_point urge_at = Clock::time_point::min();  // when ERR is asked for again
    // The next PSN that this end's responder expected, if the peer asks for it and the NIC still
    // answers.
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

}  // namespace shift::group

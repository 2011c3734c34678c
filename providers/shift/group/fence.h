// Proving that the old path will neither move nor report anything any more.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace shift::group {

struct Group;

using Clock = std::chrono::steady_clock;

// Shuts the paths that a batch of groups is committed to: their QPs to ERR, then drains the CQs
// until the markers posted after everything else have come out. Groups must be parked.
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

}  // namespace shift::group

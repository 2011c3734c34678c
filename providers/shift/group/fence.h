// Proves that the old path will neither move nor report anything any more.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
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
  // `patience`: how long a NIC may take. Only time during which the fence polls it counts: neither
  // the time that it takes to set the QP to ERR, which the round bounds, nor time in which this
  // thread could not run.
  Fence(std::vector<Group*> groups, std::chrono::nanoseconds patience);

  // Polls once; true when the fence has decided on every group.
  [[nodiscard]] bool step(Clock::time_point now);
  // Called when the group is about to be destroyed.
  void forget(const Group* group);

  enum class Result : uint8_t { kOpen, kProven, kNotProven };
  // A verb that may sleep in the kernel, on the NIC's command thread. The last field is written
  // there, after the others.
  struct Command {
    int error = 0;
    std::optional<uint32_t> responder{};
    std::atomic<bool> done{false};
  };
  struct Entry {
    Group* group;  // null: the group is forgotten
    int member;
    std::chrono::nanoseconds patience;  // what is left of it
    Result result = Result::kOpen;
    bool goes_to_error = false;  // the QP has to
    // The commands under way: to ERR, first and again; to RESET; and the question for the
    // responder's PSN.
    std::shared_ptr<Command> to_error{}, stop{}, question{};
    Clock::time_point asked{};                             // when ERR was asked for
    bool answered = false;                                 // the NIC has accepted or refused ERR
    bool shut = false;                                     // the QP is in ERR
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
  void all_to_error();
  void take_answer(Entry& entry);
  void post_send_marker(Entry& entry);
  void post_recv_marker(Entry& entry);
  void go_on(Entry& entry, Clock::time_point now);
  void try_early(Entry& entry, Clock::time_point now);
  void urge(Entry& entry, Clock::time_point now);
  bool all_taken(Entry& entry);
  bool asks_responder(Entry& entry);
  void end(Entry& entry, Result result);

  std::vector<Entry> entries_;
  std::optional<Clock::time_point> last_step_{};
};

}  // namespace shift::group

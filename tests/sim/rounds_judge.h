// Watches the changes of state of both ends and checks what no single completion shows: that a
// failback disturbs nothing, that no end takes old messages of a drain, and that no end waits for a
// peer that has failed. It sees both ends at once, which the ends themselves cannot.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "sim/rc_fabric.h"

namespace shift::sim {

// One row of the state machine's table that an end went through, as its event record says.
struct Transition {
  int host;
  uint32_t epoch;  // before the step
  std::string from, to, on;
  bool idle;  // its application has not sent anything
};

class RoundsJudge {
 public:
  using Time = VirtualTime::Clock::time_point;

  // Returns the broken rule, or an empty string when there is none.
  std::string take(const Transition& transition, Time now);
  void leader_set(int host) { leader_ = host; }
  // How long an end waits for what may come back, as its application asked.
  void patience_set(int host, Duration patience) {
    ends_[static_cast<size_t>(host)].patience = patience;
  }
  // What the end waits for does not come back; it can know that, or only may.
  void hopeless(int host, bool knows) {
    End& end = ends_[static_cast<size_t>(host)];
    end.hopeless = true;
    if (knows) end.patience = kExchange;
  }
  Duration patience(int host) const { return ends_[static_cast<size_t>(host)].patience; }

  // Paths may fail at least until this time.
  void disturbed(Time until);
  // Nothing makes paths fail any more.
  void healed(Time now);
  // Messages may be lost until this time.
  void channel_disturbed(Time until) { channel_bad_ = std::max(channel_bad_, until); }

  // Whether the round under way has a fault as its reason, so that requests may run twice.
  bool by_fault() const { return by_fault_; }

 private:
  // How late a message may be in its order; how long a fault has effects after its end; how long an
  // end may wait for the answer of a peer that has failed.
  static constexpr std::chrono::milliseconds kMessage{5}, kAftermath{100}, kAnswer{1000};
  static constexpr std::chrono::milliseconds kExchange{3000};  // SHIFT_EXCHANGE_MS

  struct End {
    std::string state = "active";
    Time since{};          // when this state began
    Time left_draining{};  // when draining ended last
    Time left_path{};      // when the round under way, or the last one, began
    Duration patience{};
    bool hopeless = false;
  };
  std::string deadline_take(const Transition& transition, Time now) const;
  std::string drain_take(const Transition& transition, Time now);

  std::array<End, 2> ends_;
  int leader_ = 0;
  bool by_fault_ = true;
  bool calm_ = false;  // nothing has happened to any path since the failback began
  Time disturbed_{}, channel_bad_{};
};

}  // namespace shift::sim

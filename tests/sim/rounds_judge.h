// Watches the changes of state of both ends and demands what no single completion shows: that a way
// back disturbs nobody, that old messages of a drain are not taken, and that nobody waits for a
// peer that has given up. It sees both ends at once, which they cannot.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "sim/rc_fabric.h"

namespace shift::sim {

// One row of the failure machine's table that was used, as the layer's event record tells it.
struct Transition {
  int host;
  uint32_t epoch;  // before the step
  std::string from, to, on;
  bool idle;  // its application has not sent anything
};

class RoundsJudge {
 public:
  using Time = VirtualTime::Clock::time_point;

  // The broken rule; empty when there is none.
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

  // Something makes paths fail, up to then at least.
  void disturbed(Time until);
  // Nothing does any more.
  void healed(Time now);
  // What is said may be lost, up to then.
  void channel_disturbed(Time until) { channel_bad_ = std::max(channel_bad_, until); }

  // Whether the round under way has a fault for a cause: then requests may run twice.
  bool by_fault() const { return by_fault_; }

 private:
  // How late a message in its place may be, and what is under way when a fault is over.
  static constexpr std::chrono::milliseconds kMessage{5}, kAftermath{100}, kAnswer{1000};
  static constexpr std::chrono::milliseconds kExchange{3000};  // SHIFT_EXCHANGE_MS

  struct End {
    std::string state = "active";
    Time since{};          // in this state
    Time left_draining{};  // the last time
    Time left_path{};      // the round under way, or the last one, began
    Duration patience{};
    bool hopeless = false;
  };
  std::string deadline_take(const Transition& transition, Time now) const;
  std::string drain_take(const Transition& transition, Time now);

  std::array<End, 2> ends_;
  int leader_ = 0;
  bool by_fault_ = true;
  bool calm_ = false;  // since the way back began nothing has happened to any path
  Time disturbed_{}, channel_bad_{};
};

}  // namespace shift::sim

// Posts what a schedule plans for the applications, at its time.
#include <algorithm>
#include <utility>

#include "sim/simulation.h"

namespace shift::sim {

void Simulation::traffic_plan() {
  for (Pair& pair : pairs_) {
    for (int h = 0; h < 2; h++) traffic_plan(pair, h);
  }
}

void Simulation::traffic_plan(Pair& pair, int host) {
  const auto h = static_cast<size_t>(host);
  const auto plan = [&](microseconds when, const AppPlan::Send* send) {
    if (when == AppPlan::kLate) {
      pair.late_receives[h]++;
    } else if (when == AppPlan::kWayBack) {
      pair.waiting[h].push_back(send);
    } else if (when.count() == 0 && send == nullptr) {
      traffic_post(pair, host, send);
    } else {
      time_.in(when, [this, &pair, host, send] { traffic_post(pair, host, send); });
    }
  };
  for (const auto when : pair.plans[h].receives) plan(when, nullptr);
  for (const auto& send : pair.plans[h].sends) plan(send.when, &send);
}

// Posts a send, or a receive when `send` is null.
void Simulation::traffic_post(Pair& pair, int host, const AppPlan::Send* send) {
  if (gone_[static_cast<size_t>(host)]) return;
  if (send == nullptr) return pair.judge.receive(host);
  pair.judge.send(host, *send);
}

// A path is ready. If it is a better one, the failback to it begins when it has been ready for long
// enough. What waited for the failback is posted shortly before it, in the middle of it, or later.
void Simulation::traffic_way_back() {
  constexpr milliseconds kFailback{1000};
  for (int h = 0; h < 2; h++) {
    Pair& pair = pairs_.front();
    auto& waiting = pair.waiting[static_cast<size_t>(h)];
    std::erase_if(waiting, [&](const AppPlan::Send* send) {
      if (dice_.chance(30)) return false;  // it waits for another failback
      const uint32_t way = dice_.below(4);
      const microseconds offset(way < 2    ? static_cast<int>(dice_.below(600)) - 300
                                : way == 2 ? static_cast<int>(dice_.below(5'000))
                                           : static_cast<int>(dice_.below(600'000)));
      time_.in(kFailback + offset, [this, &pair, h, send] { traffic_post(pair, h, send); });
      return true;
    });
  }
}

// Posts the requests for which no failback came.
void Simulation::traffic_rest() {
  for (int h = 0; h < 2; h++) {
    Pair& pair = pairs_.front();
    for (const auto* send : std::exchange(pair.waiting[static_cast<size_t>(h)], {})) {
      traffic_post(pair, h, send);
    }
  }
}

}  // namespace shift::sim

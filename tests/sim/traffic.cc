// When the applications post what a schedule plans for them.
#include <algorithm>
#include <utility>

#include "sim/simulation.h"

namespace shift::sim {

void Simulation::traffic_plan() {
  for (int h = 0; h < 2; h++) {
    const auto i = static_cast<size_t>(h);
    const auto plan = [&](microseconds when, const AppPlan::Send* send) {
      if (when == AppPlan::kLate) {
        late_receives_[i]++;
      } else if (when == AppPlan::kWayBack) {
        waiting_[i].push_back(send);
      } else if (when.count() == 0 && send == nullptr) {
        traffic_post(h, send);
      } else {
        time_.in(when, [this, h, send] { traffic_post(h, send); });
      }
    };
    for (const auto when : schedule_.apps[i].receives) plan(when, nullptr);
    for (const auto& send : schedule_.apps[i].sends) plan(send.when, &send);
  }
}

// Null: a receive.
void Simulation::traffic_post(int host, const AppPlan::Send* send) {
  if (gone_[static_cast<size_t>(host)]) return;
  if (send == nullptr) return judge_.receive(host);
  judge_.send(host, *send);
}

// A path is ready. If it is a better one it will be gone back to when it has been so for long
// enough: what waited for that is posted shortly before, in the middle of it, or while it takes
// long.
void Simulation::traffic_way_back() {
  constexpr milliseconds kFailback{1000};
  for (int h = 0; h < 2; h++) {
    auto& waiting = waiting_[static_cast<size_t>(h)];
    std::erase_if(waiting, [&](const AppPlan::Send* send) {
      if (dice_.chance(30)) return false;  // for another
      const uint32_t way = dice_.below(4);
      const microseconds offset(way < 2    ? static_cast<int>(dice_.below(600)) - 300
                                : way == 2 ? static_cast<int>(dice_.below(5'000))
                                           : static_cast<int>(dice_.below(600'000)));
      time_.in(kFailback + offset, [this, h, send] { traffic_post(h, send); });
      return true;
    });
  }
}

// There was none.
void Simulation::traffic_rest() {
  for (int h = 0; h < 2; h++) {
    for (const auto* send : std::exchange(waiting_[static_cast<size_t>(h)], {})) {
      traffic_post(h, send);
    }
  }
}

}  // namespace shift::sim

#include "control/late_nics.h"

#include <algorithm>
#include <chrono>

#include "util/config.h"

namespace shift::control {

void LateNics::look_later() {
  // A task that is late by a quarter more than it may be is early enough.
  const std::chrono::milliseconds pause(std::clamp(config().command_ms / 4, 5, 250));
  look_again_.start(pause, [this] {
    if (nics_.commands_look()) look_later();
  });
}

}  // namespace shift::control

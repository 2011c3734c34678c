#include "control/runtime.h"

#include <new>

#include "control/peer_net.h"
#include "util/config.h"

namespace shift::control {

Runtime* runtime() {
  // Never destroyed: threads of the program may use verbs until the very end.
  static Runtime* const instance = []() -> Runtime* {
    auto* made = new (std::nothrow) Runtime;
    if (made == nullptr || !made->control.start() || !made->worker.start()) return nullptr;
    made->control.call_and_wait([&] {
      auto coordinator = std::make_unique<Coordinator>(made->control, made->worker);
      PeerNetOptions options;
      options.port = config().port;
      coordinator->network_set(std::make_unique<PeerNet>(made->control, *coordinator, options));
      made->coordinator = std::move(coordinator);
    });
    return made->coordinator != nullptr ? made : nullptr;
  }();
  return instance;
}

}  // namespace shift::control

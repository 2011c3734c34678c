#include "control/runtime.h"

#include <new>
#include <optional>

#include "control/link_watch.h"
#include "control/peer_net.h"
#include "control/reactor.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::control {

namespace {

struct Threads {
  Reactor control;
  Reactor worker;
  std::unique_ptr<Coordinator> coordinator;
  std::optional<Runtime> runtime;
};

}  // namespace

Runtime* runtime() {
  // Never destroyed: threads of the program may use verbs until the very end.
  static Runtime* const instance = []() -> Runtime* {
    auto* made = new (std::nothrow) Threads;
    if (made == nullptr || !made->control.start() || !made->worker.start()) return nullptr;
    made->control.call_and_wait([&] {
      auto coordinator = std::make_unique<Coordinator>(made->control, made->worker);
      PeerNetOptions options;
      options.port = config().port;
      coordinator->network_set(std::make_unique<PeerNet>(made->control, *coordinator, options));
      auto links = std::make_unique<LinkWatch>(made->control, *coordinator);
      if (const char* problem = links->start()) {
        // Faults show by other signs, only later in some cases.
        SHIFT_WARN("the state of network devices is not watched: %s", problem);
      } else {
        coordinator->links_set(std::move(links));
      }
      made->coordinator = std::move(coordinator);
    });
    if (made->coordinator == nullptr) return nullptr;
    return &made->runtime.emplace(made->control, made->worker, *made->coordinator);
  }();
  return instance;
}

}  // namespace shift::control

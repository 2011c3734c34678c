// The end of the process. A program may end right after it posted or received something. A real NIC
// still sends what was posted and acknowledges what came, but our engine ends with the process.
#include <cstdlib>

#include "host/interpose.h"
#include "host/poll_hook.h"
#include "host/real.h"

namespace {

cxemu::Real<void(int)> g_exit("_exit");

void farewell() {
  if (cxemu::Engine* engine = cxemu::PollHook::engine_get()) engine->finish();
}

[[noreturn]] void leave(int status) {
  farewell();
  for (;;) g_exit(status);
}

[[gnu::constructor]] void farewell_arm() {
  at_quick_exit(farewell);
}

// exit() runs this after the program's own handlers and destructors.
[[gnu::destructor]] void farewell_at_exit() {
  farewell();
}

}  // namespace

CXEMU_EXPORT(void, _exit, (int status)) {
  leave(status);
}
CXEMU_EXPORT(void, _Exit, (int status)) {
  leave(status);
}

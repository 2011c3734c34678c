// cxemu_pause() and cxemu_resume(): a benchmark stops the NIC's engine during a stretch of code, so
// that it measures what a program pays for writing rings, not what the emulator does with them.
#include <atomic>

#include "host/poll_hook.h"

namespace {
std::atomic<cxemu::Engine*> g_paused{nullptr};
}  // namespace

extern "C" {

// From now on nothing moves in this process, and polling does not run the engine. Verbs that issue
// commands would wait for ever: only rings may be used, and only by the thread that resumes.
[[gnu::visibility("default")]] void cxemu_pause() {
  cxemu::Engine* engine = cxemu::PollHook::engine_get();
  if (engine == nullptr) return;
  engine->lock().lock();
  cxemu::PollHook::engine_set(nullptr);
  g_paused.store(engine);
}

// The thread that paused calls this.
[[gnu::visibility("default")]] void cxemu_resume() {
  cxemu::Engine* engine = g_paused.exchange(nullptr);
  if (engine == nullptr) return;
  cxemu::PollHook::engine_set(engine);
  engine->lock().unlock();
  engine->wake();
}

}  // extern "C"

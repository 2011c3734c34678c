#include "control/runtime.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "control/host_memory.h"
#include "control/nic_threads.h"
#include "control/process_board.h"
#include "net/link_watch.h"
#include "net/peer_net.h"
#include "net/reactor.h"
#include "state/board.h"
#include "state/directory.h"
#include "state/shares_table.h"
#include "util/config.h"
#include "util/fork.h"
#include "util/job_keys.h"
#include "util/log.h"

namespace shift::control {

namespace {

struct Threads {
  const uint64_t generation = fork_generation();
  net::Reactor control{"shift-control"};
  NicThreads commands{config().command_ms};
  std::unique_ptr<Coordinator> coordinator;
  std::optional<Runtime> runtime;
};

// This is never destroyed, because threads of the program may use verbs until the very end. In a
// fork child, the parent's record stays: objects that were inherited still ask it.
constinit std::atomic<Threads*> current{nullptr};
constinit std::mutex starting;

// The lock is held across fork, because a child could not end what another thread has begun.
// Handlers that run before a fork run in the reverse order of their registration; so this lock is
// taken before that of fork.cc, as in a thread that starts the runtime.
void before_fork() {
  starting.lock();
}
void after_fork() {
  starting.unlock();
}

bool is_ours(const Threads* threads) {
  return threads != nullptr && threads->generation == fork_generation();
}

// The keys of SHIFT_KEY_FILE. False: they cannot be used, and nothing may be said without them.
bool keys_read(std::unique_ptr<JobKeys>& keys) {
  if (!config().key_file) return true;
  std::string problem;
  keys = JobKeys::read(*config().key_file, problem);
  static bool is_told = false;
  if (keys == nullptr && !std::exchange(is_told, true))
    SHIFT_ERROR("no failover: %s", problem.c_str());
  if (keys == nullptr) process_board().problem_set(problem.c_str());
  return keys != nullptr;
}

std::unique_ptr<Threads> start() {
  std::unique_ptr<JobKeys> keys;
  if (!keys_read(keys)) return nullptr;
  std::unique_ptr<Threads> made(new (std::nothrow) Threads);
  if (made == nullptr || !made->control.start()) return nullptr;
  made->control.call_and_wait([&made, &keys] {
    events_gather();
    auto coordinator = std::make_unique<Coordinator>(made->control, made->commands);
    net::PeerNetOptions options;
    options.port = config().port;
    auto net =
        std::make_unique<net::PeerNet>(made->control, *coordinator, options, std::move(keys));
    net->book_set(host_book_make());
    if (config().rendezvous.redis)
      net->store_set(*config().rendezvous.redis, config().rendezvous.tcp);
    coordinator->network_set(std::move(net));
    auto links = std::make_unique<net::LinkWatch>(made->control, coordinator->nics());
    if (const char* problem = links->start()) {
      // Faults still show by other signs, though later in some cases.
      SHIFT_WARN("the state of network devices is not watched: %s", problem);
    } else {
      coordinator->nics().links_set(std::move(links));
    }
    state::Board& board = process_board();
    coordinator->reporter().board_set(&board);
    if (!config().state_dir.empty())
      coordinator->shares().table_set(
          std::make_unique<state::SharesTable>(config().state_dir, ::geteuid()));
    const std::string stem = board.stem();
    if (config().locate) coordinator->locator().begin();
    if (!config().state_dir.empty())
      coordinator->orders().begin(config().state_dir, stem.empty() ? "" : stem + state::kSocketEnd);
    made->coordinator = std::move(coordinator);
  });
  if (made->coordinator == nullptr) return nullptr;
  made->runtime.emplace(Runtime{made->control, *made->coordinator});
  return made;
}

}  // namespace

bool runtime_start() {
  if (is_ours(current.load(std::memory_order_acquire))) return true;
  static const int watched = [] {
    (void)fork_generation();  // registers fork.cc's handlers
    return pthread_atfork(before_fork, after_fork, after_fork);
  }();
  (void)watched;
  std::lock_guard lock(starting);
  if (is_ours(current.load(std::memory_order_relaxed))) return true;
  Threads* made = start().release();
  if (made == nullptr) return false;
  current.store(made, std::memory_order_release);
  return true;
}

Runtime* runtime() {
  Threads* threads = current.load(std::memory_order_acquire);
  return threads != nullptr ? &*threads->runtime : nullptr;
}

}  // namespace shift::control

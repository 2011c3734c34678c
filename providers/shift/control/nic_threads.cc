#include "control/nic_threads.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "util/fork.h"
#include "util/log.h"
#include "util/uncancellable.h"

namespace shift::control {

using std::chrono::nanoseconds;

namespace {

// The names of the NICs, by their numbers. A fork child keeps them, because its copies of the
// parent's objects have the numbers; no lock, which another thread may hold at the fork, guards the
// list. Names are never freed, because devices may be opened in exit handlers, too.
constinit std::array<std::atomic<const char*>, NicThreads::kNicsMax> names{};

// How often a thread that waits for a task looks whether the NIC is late.
constexpr std::chrono::milliseconds kWaitPause{20};
// A NIC that works takes far less for a task, unless it registers much memory.
constexpr std::chrono::milliseconds kSlow{100};

int64_t now_ns() {
  return nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

struct NicThreads::Nic {
  explicit Nic(int number) {
    const char* device = names[static_cast<size_t>(number)];
    std::snprintf(name.data(), name.size(), "shift-%s", device != nullptr ? device : "nic");
  }
  std::array<char, 16> name{};  // the kernel's limit
  net::Reactor loop{name.data()};
  std::atomic<int> tasks{0};  // queued or running
  // When the running task was begun, and when it will have taken too long; 0: none runs.
  std::atomic<int64_t> begun_at{0}, late_at{0};
};

NicThreads::NicThreads(int command_ms)
    : generation_(fork_generation()),
      allowed_(std::chrono::milliseconds(command_ms)),
      slow_(std::min<nanoseconds>(kSlow, allowed_)) {}

NicThreads::~NicThreads() {
  for (auto& nic : nics_) delete nic.load();
}

int NicThreads::number_of(const char* name) {
  std::unique_ptr<char, decltype(&std::free)> copy(nullptr, std::free);
  for (int nic = 0; nic < kNicsMax; nic++) {
    auto& place = names[static_cast<size_t>(nic)];
    const char* known = place;
    if (known == nullptr) {
      if (copy == nullptr) copy.reset(strdup(name));
      if (copy == nullptr) break;
      if (place.compare_exchange_strong(known, copy.get())) return copy.release(), nic;
    }
    if (std::strcmp(known, name) == 0) return nic;
  }
  return kNicsMax - 1;
}

NicThreads::Nic* NicThreads::find(int nic) const noexcept {
  if (generation_ != fork_generation()) return nullptr;  // a fork child has none of the threads
  return nics_[static_cast<size_t>(nic)].load(std::memory_order_acquire);
}

NicThreads::Nic* NicThreads::make(int nic) noexcept try {
  if (Nic* found = find(nic)) return found;
  if (generation_ != fork_generation()) return nullptr;
  std::lock_guard lock(making_);
  auto& place = nics_[static_cast<size_t>(nic)];
  if (Nic* found = place.load(std::memory_order_relaxed)) return found;
  auto made = std::make_unique<Nic>(nic);
  if (!made->loop.start()) {
    SHIFT_WARN_LIMITED("no thread can be started for the commands of %s: %m", made->name.data());
    return nullptr;
  }
  place.store(made.get(), std::memory_order_release);
  return made.release();
} catch (const std::exception&) {
  return nullptr;
}

bool NicThreads::run(int nic, Task task, nanoseconds extra) noexcept try {
  Nic* one = make(nic);
  if (one == nullptr) return false;
  const auto allowed = allowed_ + extra;
  one->tasks.fetch_add(1, std::memory_order_relaxed);
  const bool queued = one->loop.call_soon([one, allowed, task = std::move(task)] {
    const int64_t now = now_ns();
    one->begun_at.store(now, std::memory_order_relaxed);
    one->late_at.store(now + allowed.count(), std::memory_order_relaxed);
    task();
    one->late_at.store(0, std::memory_order_relaxed);
    one->begun_at.store(0, std::memory_order_relaxed);
    one->tasks.fetch_sub(1, std::memory_order_relaxed);
  });
  if (!queued) one->tasks.fetch_sub(1, std::memory_order_relaxed);
  return queued;
} catch (const std::exception&) {
  return false;
}

group::CommandThreads::Waited NicThreads::run_and_wait(int nic, Task task) noexcept try {
  Nic* one = make(nic);
  if (one == nullptr) return Waited::kNever;
  if (one->loop.in_thread()) return task(), Waited::kDone;
  struct Wait {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_over = false;
  };
  const auto wait = std::make_shared<Wait>();
  const bool queued = run(nic, [wait, task = std::move(task)] {
    task();
    std::lock_guard lock(wait->mutex);
    wait->is_over = true;
    wait->changed.notify_all();
  });
  if (!queued) return Waited::kNever;
  const Uncancellable shield;
  std::unique_lock lock(wait->mutex);
  while (!wait->changed.wait_for(lock, kWaitPause, [&] { return wait->is_over; })) {
    if (is_late(nic)) return Waited::kLate;
  }
  return Waited::kDone;
} catch (const std::exception&) {
  return Waited::kNever;
}

bool NicThreads::is_late(int nic) const noexcept {
  const Nic* one = find(nic);
  if (one == nullptr) return false;
  const int64_t late_at = one->late_at.load(std::memory_order_relaxed);
  return late_at != 0 && now_ns() > late_at;
}

bool NicThreads::is_slow(int nic) const noexcept {
  const Nic* one = find(nic);
  if (one == nullptr) return false;
  const int64_t begun_at = one->begun_at.load(std::memory_order_relaxed);
  return begun_at != 0 && now_ns() - begun_at > slow_.count();
}

bool NicThreads::in_thread() const noexcept {
  for (int nic = 0; nic < kNicsMax; nic++) {
    const Nic* one = find(nic);
    if (one != nullptr && one->loop.in_thread()) return true;
  }
  return false;
}

bool NicThreads::is_busy(int nic) const noexcept {
  const Nic* one = find(nic);
  return one != nullptr && one->tasks.load(std::memory_order_relaxed) != 0;
}

}  // namespace shift::control

// The engine's thread. It runs passes, sleeps when there is nothing to do, and stays out of the way
// while polling application threads run the passes themselves.
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <mutex>

#include "nic/engine_core.h"
#include "nic/idle_poller.h"
#include "nic/neighbours.h"
#include "nic/nic.h"
#include "nic/udp_carrier.h"
#include "nic/unix_carrier.h"

namespace cxemu {

namespace {

constexpr uint64_t kSpinNs = 50'000;          // before the first sleep after some work
constexpr uint64_t kSleepMinNs = 20'000;      // doorbells are plain memory, which must be read
constexpr uint64_t kSleepMaxNs = 1'000'000;   // also how late a fault of the fabric is noticed
                                              // (Neighbours::crowding() lengthens both)
constexpr uint64_t kSleepOpenNs = 5'000'000;  // NICs are open, but no QP is connected
constexpr uint64_t kSleepClosedNs = 200'000'000;
constexpr uint64_t kDrivenNs = 100'000;  // how long the thread trusts a driving application
// An application that drives and then waits without driving (it spins on memory that a WRITE will
// change, or computes) is caught when this thread finds work. One that merely was not scheduled for
// a moment is caught too, but not so often in so short a time.
constexpr uint32_t kCatchesMax = 4;
constexpr uint64_t kCatchesNs = 4'000'000;
constexpr uint64_t kMistrustNs = 50'000'000;
// Limits at the end of the process: without any progress, and in all.
constexpr uint64_t kFinishQuietNs = 20'000'000;
constexpr uint64_t kFinishMaxNs = 200'000'000;

class EngineThread final : public Engine {
 public:
  EngineThread(FabricFile& fabric, int slot, std::unique_ptr<Carrier> carrier)
      : carrier_(std::move(carrier)),
        core_(fabric, slot, clock_, *carrier_),
        neighbours_(fabric, slot) {}
  ~EngineThread() override;

  bool start();

  EngineLock& lock() override { return lock_; }
  std::unique_ptr<Nic> nic_open(FabricNic* nic, EventSink* port_sink) override {
    return core_.nic_open(nic, port_sink);
  }
  bool drive() override;
  void wake() override;
  bool finish() override;
  bool gone() const override { return core_.gone(); }

  void child_abandon();

 private:
  static void* thread_main(void* self);
  void run();
  // The caller holds the lock.
  bool pass(uint64_t now_ns);
  uint64_t pass_and_plan();
  void application_caught(uint64_t now_ns);
  void sleep(uint64_t duration_ns, bool packets_too);
  void step_aside();
  bool driven() const;
  static uint64_t clock_now() { return MonotonicClock().now_ns(); }

  MonotonicClock clock_;
  EngineLock lock_;
  std::unique_ptr<Carrier> carrier_;
  EngineCore core_;
  Neighbours neighbours_;
  const pid_t pid_ = getpid();
  pthread_t thread_ = {};
  bool started_ = false;
  int wake_fd_ = -1;
  std::atomic<bool> stop_{false};
  // wake() and sleep(): the sleeper sets sleeping_ and then checks woken_; the waker sets woken_
  // and then checks sleeping_. Both are sequentially consistent, so one sees the other.
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> woken_{false};
  std::atomic<uint64_t> last_drive_ns_{0};
  // Only the thread itself uses these.
  uint64_t last_work_ns_ = 0;
  uint64_t mistrust_until_ns_ = 0;
  uint32_t catches_ = 0;
  uint64_t catches_start_ns_ = 0;
  bool trusted_ = false;                           // the last sleep left packets to the application
  static constinit thread_local IdlePoller idle_;  // this application thread's
};

constinit thread_local IdlePoller EngineThread::idle_;

// All engines of the process, for the fork handlers. There is no lock: the forking thread may hold
// locks that a thread which starts an engine waits for. An engine must not be destroyed while
// another thread forks.
constexpr size_t kEnginesMax = 16;
std::atomic<EngineThread*> g_engines[kEnginesMax];
thread_local EngineThread* t_locked[kEnginesMax];  // by this thread's fork

bool engine_register(EngineThread* engine) {
  for (auto& place : g_engines) {
    EngineThread* expected = nullptr;
    if (place.compare_exchange_strong(expected, engine)) return true;
  }
  return false;
}

void engine_unregister(EngineThread* engine) {
  for (auto& place : g_engines) {
    EngineThread* expected = engine;
    if (place.compare_exchange_strong(expected, nullptr)) return;
  }
}

// Every lock is held across a fork, so that the child finds consistent objects and free locks.
void fork_prepare() {
  for (size_t i = 0; i < kEnginesMax; i++) {
    t_locked[i] = g_engines[i].load();
    if (t_locked[i] != nullptr) t_locked[i]->lock().lock();
  }
}

void fork_parent() {
  for (EngineThread* engine : t_locked) {
    if (engine != nullptr) engine->lock().unlock();
  }
}

void fork_child() {
  for (size_t i = 0; i < kEnginesMax; i++) {
    g_engines[i].store(nullptr);
    if (t_locked[i] == nullptr) continue;
    t_locked[i]->child_abandon();
    t_locked[i]->lock().unlock();
  }
}

// sched_setattr has no wrapper, and not every libc's headers have its struct.
struct SchedAttr {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};

// The thread must run soon after a packet arrives; otherwise the scheduler determines all timing.
// So it gets a short slice, and a better nice value where that is permitted. A real-time priority
// was tried and was worse: it forbids spinning, and each short sleep then costs a wake-up, which
// takes long on virtual machines and evicts the application from its core.
void thread_prioritise() {
  constexpr uint64_t kSliceNs = 100'000;
  prctl(PR_SET_NAME, "cxemu");
  prctl(PR_SET_TIMERSLACK, 1);
  for (const int32_t nice : {-10, 0}) {
    const SchedAttr attr = {.size = sizeof attr, .nice = nice, .runtime = kSliceNs};
    if (syscall(SYS_sched_setattr, 0, &attr, 0) == 0) return;
  }
}

EngineThread::~EngineThread() {
  engine_unregister(this);
  if (started_ && !core_.gone()) {
    stop_.store(true);
    wake();
    pthread_join(thread_, nullptr);
  }
  if (wake_fd_ >= 0) close(wake_fd_);
}

bool EngineThread::start() {
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return false;
  static const int handlers = pthread_atfork(fork_prepare, fork_parent, fork_child);
  if (handlers != 0 || !engine_register(this)) {
    errno = ENOMEM;
    return false;
  }
  // The host program's signals must not be delivered to this thread.
  sigset_t all_signals, previous;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &previous);
  started_ = pthread_create(&thread_, nullptr, thread_main, this) == 0;
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  return started_;
}

void EngineThread::child_abandon() {
  core_.abandon();
  carrier_->abandon();
  if (wake_fd_ >= 0) syscall(SYS_close, wake_fd_);
  wake_fd_ = -1;
}

void* EngineThread::thread_main(void* self) {
  thread_prioritise();
  static_cast<EngineThread*>(self)->run();
  return nullptr;
}

bool EngineThread::pass(uint64_t now_ns) {
  neighbours_.stamp(now_ns, true);
  core_.time_hold(neighbours_.any_starved(now_ns));
  return core_.pass();
}

bool EngineThread::drive() {
  // A program that polls without a pause comes again; a waiting command would not get a chance.
  if (lock_.contended() || !lock_.try_lock()) {
    sched_yield();
    return false;
  }
  const uint64_t now = clock_now();
  const bool any = pass(now);
  const uint64_t crowding = neighbours_.crowding();
  lock_.unlock();
  last_drive_ns_.store(now, std::memory_order_relaxed);
  any ? idle_.found() : idle_.wait(now, crowding);
  return any;
}

void EngineThread::wake() {
  woken_.store(true);
  if (!sleeping_.load()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = syscall(SYS_write, wake_fd_, &one, sizeof one);
}

bool EngineThread::finish() {
  // A child of vfork() runs in its parent's memory, but its end is not the parent's end.
  if (getpid() != pid_) return false;
  const uint64_t begin = clock_now();
  uint64_t moved = begin;
  for (uint64_t now = begin; now - moved < kFinishQuietNs && now - begin < kFinishMaxNs;
       now = clock_now()) {
    // If this thread is ending the process, the holder of the lock may never release it.
    if (lock_.try_lock()) {
      const bool any = core_.pass();
      const bool settled = core_.settled() || core_.gone();
      lock_.unlock();
      if (settled) return true;
      if (any) moved = now;
    }
    sched_yield();
  }
  return false;
}

// Runs a pass and returns for how long the thread may sleep.
uint64_t EngineThread::pass_and_plan() {
  const std::lock_guard guard(lock_);
  const uint64_t now = clock_now();
  const bool any = pass(now);
  if (any) last_work_ns_ = now;
  if (any && trusted_) application_caught(now);
  const uint64_t idle_ns = now - last_work_ns_, crowding = neighbours_.crowding();
  if (idle_ns < kSpinNs / crowding) return 0;
  if (!core_.any_watched()) {
    neighbours_.stamp(now, false);
    return core_.any_open() ? kSleepOpenNs : kSleepClosedNs;
  }
  return core_.quiet_ns(
      std::clamp(idle_ns / 8 * crowding, kSleepMinNs * crowding, kSleepMaxNs * crowding));
}

void EngineThread::application_caught(uint64_t now_ns) {
  if (now_ns - catches_start_ns_ > kCatchesNs) {
    catches_start_ns_ = now_ns;
    catches_ = 0;
  }
  if (++catches_ >= kCatchesMax) mistrust_until_ns_ = now_ns + kMistrustNs;
}

// Whether the application runs passes often enough without this thread.
bool EngineThread::driven() const {
  const uint64_t now = clock_now();
  return now - last_drive_ns_.load(std::memory_order_relaxed) < kDrivenNs &&
         now >= mistrust_until_ns_;
}

// `packets_too`: packets end the sleep as well.
void EngineThread::sleep(uint64_t duration_ns, bool packets_too) {
  sleeping_.store(true);
  if (!woken_.exchange(false)) {
    pollfd fds[2] = {{wake_fd_, POLLIN, 0}, {carrier_->wait_fd(), POLLIN, 0}};
    const timespec timeout = {static_cast<time_t>(duration_ns / 1'000'000'000),
                              static_cast<long>(duration_ns % 1'000'000'000)};
    ppoll(fds, packets_too ? 2 : 1, &timeout, nullptr);
    uint64_t count;
    if ((fds[0].revents & POLLIN) != 0) {
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
      last_work_ns_ = clock_now();  // a caller expects something, so look closely for a while
    }
    woken_.store(false);
  }
  sleeping_.store(false);
}

// A thread that takes the lock again at once would never let another thread have it.
void EngineThread::step_aside() {
  for (int i = 0; i < 100 && lock_.contended(); i++) {
    const timespec pause = {0, 10'000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr);
  }
}

void EngineThread::run() {
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint64_t sleep_ns = pass_and_plan();
    step_aside();
    trusted_ = driven();
    if (trusted_) {
      // As long as the application goes on driving, the thread has nothing to do, not even to look.
      do {
        sleep(kDrivenNs, false);
      } while (!stop_.load(std::memory_order_relaxed) && driven());
    } else if (sleep_ns > 0) {
      sleep(sleep_ns, true);
    } else {
      sched_yield();  // spins, but yields to the application
    }
  }
}

std::unique_ptr<Carrier> carrier_open(FabricFile& fabric, int slot) {
  if (fabric.wire == kWireUdp) return UdpCarrier::open(fabric, slot);
  return UnixCarrier::open(fabric.net, slot);
}

}  // namespace

std::unique_ptr<Engine> Engine::start(FabricFile& fabric, int slot) {
  auto carrier = carrier_open(fabric, slot);
  if (!carrier) return nullptr;
  auto engine = std::make_unique<EngineThread>(fabric, slot, std::move(carrier));
  if (!engine->start()) return nullptr;
  return engine;
}

}  // namespace cxemu

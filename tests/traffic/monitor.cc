// Async events, watchdog, timeline.
#include "monitor.h"

#include <execinfo.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>

namespace traffic {

AsyncWatcher::AsyncWatcher(ibv_context* context, Report* report)
    : context_(context), report_(report), stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  thread_ = std::thread([this] { run(); });
}

void AsyncWatcher::stop() {
  if (!thread_.joinable()) return;
  uint64_t one = 1;
  if (write(stop_fd_, &one, sizeof one) != sizeof one) report_->error("eventfd");
  thread_.join();
  close(stop_fd_);
}

void AsyncWatcher::run() {
  for (;;) {
    pollfd fds[2] = {{context_->async_fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) return;
    ibv_async_event event{};
    if (ibv_get_async_event(context_, &event) != 0) {
      usleep(1000);  // a broken descriptor stays readable; do not spin
      continue;
    }
    std::string name = ibv_event_type_str(event.event_type);
    printf("async event: %s\n", name.c_str());
    fflush(stdout);
    {
      std::lock_guard guard(lock_);
      events_.push_back(name);
    }
    ibv_ack_async_event(&event);
  }
}

std::vector<std::string> AsyncWatcher::events() const {
  std::lock_guard guard(lock_);
  return events_;
}

namespace {

// Shows where the main loop stands still. The process ends afterwards, so nothing has to be safe
// but the way here.
void show_stack(int) {
  void* frames[64];
  printf("HANG the main loop stands here\n");
  fflush(stdout);
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDOUT_FILENO);
}

}  // namespace

Watchdog::Watchdog(uint32_t limit_ms) : limit_ms_(limit_ms), watched_(pthread_self()) {
  signal(SIGUSR2, show_stack);
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  stop_.store(true, std::memory_order_relaxed);
  thread_.join();
}

void Watchdog::run() {
  uint64_t last = 0, since = now_ns();
  while (!stop_.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    uint64_t beats = beats_.load(std::memory_order_relaxed);
    if (beats != last) {
      last = beats;
      since = now_ns();
    } else if (now_ns() - since > uint64_t{limit_ms_} * 1'000'000) {
      printf("HANG the main loop has not come round for %u ms\n", limit_ms_);
      fflush(stdout);
      pthread_kill(watched_, SIGUSR2);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      _exit(kExitHang);
    }
  }
}

void Timeline::add(uint64_t now_ns, uint64_t bytes_total) {
  if (bytes_total == last_total_) return;
  uint64_t ms = now_ns / 1'000'000;
  if (samples_.empty() || samples_.back().ms != ms) samples_.push_back({ms, 0});
  samples_.back().bytes += bytes_total - last_total_;
  last_total_ = bytes_total;
}

bool Timeline::write_csv(const std::string& path) const {
  FILE* file = fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  fprintf(file, "monotonic_ms,bytes\n");
  for (const Sample& sample : samples_)
    fprintf(file, "%llu,%llu\n", static_cast<unsigned long long>(sample.ms),
            static_cast<unsigned long long>(sample.bytes));
  return fclose(file) == 0;
}

}  // namespace traffic

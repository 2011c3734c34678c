// What runs beside the data path: the async event thread, the watchdog, the throughput timeline.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "report.h"

namespace traffic {

// Records every async event of the device, as programs with an event thread see them.
class AsyncWatcher {
 public:
  AsyncWatcher(ibv_context* context, Report* report);
  ~AsyncWatcher() { stop(); }
  void stop();
  // The events so far. While faults are masked there must be none (C9).
  std::vector<std::string> events() const;

 private:
  void run();

  ibv_context* const context_;
  Report* const report_;
  int stop_fd_;
  mutable std::mutex lock_;
  std::vector<std::string> events_;
  std::thread thread_;
};

// Ends the process when the main loop hangs, and shows where: a verbs call that never returns is a
// finding, too. Made by the thread that it watches.
class Watchdog {
 public:
  explicit Watchdog(uint32_t limit_ms);
  ~Watchdog();
  void beat() { beats_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void run();

  const uint32_t limit_ms_;
  const pthread_t watched_;
  std::atomic<uint64_t> beats_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Records how many bytes complete in each millisecond.
class Timeline {
 public:
  void add(uint64_t now_ns, uint64_t bytes_total);
  bool write_csv(const std::string& path) const;

 private:
  struct Sample {
    uint64_t ms;
    uint64_t bytes;
  };
  uint64_t last_total_ = 0;
  std::vector<Sample> samples_;
};

}  // namespace traffic

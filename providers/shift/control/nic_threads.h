// The command threads of this process, one for each NIC that has had a task.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "group/command_threads.h"
#include "net/reactor.h"

namespace shift::control {

class NicThreads final : public group::CommandThreads {
 public:
  // A host has fewer NICs. All that come after share the thread of the last one.
  static constexpr int kNicsMax = 64;

  // `command_ms`: how long a task may take, in milliseconds.
  explicit NicThreads(int command_ms);
  ~NicThreads();

  int number_of(const char* name) override;
  bool run(int nic, Task task, std::chrono::nanoseconds extra = {}) noexcept override;
  Waited run_and_wait(int nic, Task task) noexcept override;
  bool is_late(int nic) const noexcept override;
  bool is_slow(int nic) const noexcept override;
  bool in_thread() const noexcept override;
  bool is_busy(int nic) const noexcept override;

 private:
  struct Nic;
  Nic* find(int nic) const noexcept;
  Nic* make(int nic) noexcept;

  const uint64_t generation_;
  const std::chrono::nanoseconds allowed_, slow_;
  std::mutex making_;
  std::array<std::atomic<Nic*>, kNicsMax> nics_{};
};

}  // namespace shift::control

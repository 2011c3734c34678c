// Where verbs are called that may sleep in the kernel. Each NIC has a thread of its own for them,
// its command thread, so that a NIC whose firmware hangs (mlx5 waits up to 60 s for each command)
// holds up nothing but itself. A NIC whose thread takes too long for one task is *late*.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "group/context.h"

namespace shift::group {

// The functions may be called on any thread, with any lock held, but for run_and_wait(): its caller
// holds no lock that a task may want.
class CommandThreads {
 public:
  using Task = std::function<void()>;

  // The number of the NIC with that name, in this process.
  virtual int number_of(const char* name) = 0;
  // Runs the task on the NIC's thread; tasks of one NIC run in the order of the calls. Returns
  // false when it will never run: there is no thread. `extra`: how much longer than
  // SHIFT_COMMAND_MS the task may take.
  virtual bool run(int nic, Task task, std::chrono::nanoseconds extra = {}) noexcept = 0;
  // Like run(), and waits until the task has run, or the NIC is late. In that case the task may
  // still run, so it must hold all that it uses.
  enum class Waited : uint8_t { kDone, kLate, kNever };
  virtual Waited run_and_wait(int nic, Task task) noexcept = 0;
  // Whether a task has been running for longer than it may.
  virtual bool is_late(int nic) const noexcept = 0;
  // Whether a task has been running for so long that it may become late: whoever can use another
  // NIC had better not wait for this one.
  virtual bool is_slow(int nic) const noexcept = 0;
  // Whether the caller is one of the threads.
  virtual bool in_thread() const noexcept = 0;
  // Whether any task is queued or running.
  virtual bool is_busy(int nic) const noexcept = 0;

 protected:
  ~CommandThreads() = default;
};
// Set once by control/ before the first protected context is opened.
inline constinit CommandThreads* command_threads = nullptr;

// Runs the task on the command thread of the member's NIC, or never.
inline bool on_nic(const Context& context, int member, CommandThreads::Task task,
                   std::chrono::nanoseconds extra = {}) {
  return command_threads != nullptr &&
         command_threads->run(context.members[member].nic, std::move(task), extra);
}
// Like on_nic(), and waits as run_and_wait() does.
inline CommandThreads::Waited on_nic_and_wait(const Context& context, int member,
                                              CommandThreads::Task task) {
  if (command_threads == nullptr) return CommandThreads::Waited::kNever;
  return command_threads->run_and_wait(context.members[member].nic, std::move(task));
}
inline bool is_busy(const Context& context, int member) {
  return command_threads != nullptr && command_threads->is_busy(context.members[member].nic);
}
inline bool is_late(const Context& context, int member) {
  return command_threads != nullptr && command_threads->is_late(context.members[member].nic);
}
inline bool is_slow(const Context& context, int member) {
  return command_threads != nullptr && command_threads->is_slow(context.members[member].nic);
}

}  // namespace shift::group

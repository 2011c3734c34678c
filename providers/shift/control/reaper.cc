#include "control/reaper.h"

#include <exception>
#include <utility>

#include "util/fork.h"

namespace shift::control {

namespace {

constexpr std::chrono::milliseconds kReapPause{2};

}  // namespace

Reaper::Reaper(net::Loop& loop) : loop_(loop), generation_(fork_generation()), timer_(loop) {}

bool Reaper::add(net::Loop::Task& task) noexcept try {
  // The lock may be held by a thread that a fork child lacks.
  if (generation_ != fork_generation()) return false;
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (tasks_.size() > 1) return true;
  }
  if (loop_.call_soon([this] { timer_.start(kReapPause, [this] { run(); }); })) return true;
  std::lock_guard lock(mutex_);
  task = std::move(tasks_.front());
  tasks_.clear();
  return false;
} catch (const std::exception&) {
  return false;
}

void Reaper::run() {
  std::vector<net::Loop::Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (net::Loop::Task& task : tasks) {
    try {
      task();
    } catch (const std::exception&) {  // memory is short; the others do not suffer from it
    }
    task = nullptr;
  }
}

}  // namespace shift::control

// A device that is closed with objects left on it.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <map>
#include <set>

#include "group/test/fake.h"
#include "ops/test/runtime.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::kDefault;
using group::World;

// Descriptors are readable when the test says so, and no time passes.
class ScriptedLoop final : public LazyLoop {
 public:
  bool add_fd(int fd, uint32_t, FdCallback callback) override {
    callbacks[fd] = std::move(callback);
    return true;
  }
  void remove_fd(int fd) noexcept override { callbacks.erase(fd); }
  using LazyLoop::timer_start;
  TimerId timer_start(Clock::time_point, Task) override {
    timers.insert(++last_);
    return last_;
  }
  void timer_cancel(TimerId id) noexcept override { timers.erase(id); }

  std::map<int, FdCallback> callbacks;
  std::set<TimerId> timers;

 private:
  TimerId last_ = 0;
};

CompletionQueue* told_of = nullptr;

// An event of a CQ that nobody may be polling is followed by another look.
TEST(ClosedContext, ItsQueuesAreNotLookedAtAgain) {
  World world;
  Below table = *group::fake_below();
  table.get_cq_event = [](ibv_comp_channel*, ibv_cq** cq, void** owner) {
    if (told_of == nullptr) return -1;
    *cq = told_of->real[kDefault];
    *owner = std::exchange(told_of, nullptr);
    return 0;
  };
  table.ack_cq_events = [](ibv_cq*, unsigned) {};
  const Below* const before = std::exchange(below, &table);
  ibv_comp_channel watch{};
  watch.fd = eventfd(0, EFD_CLOEXEC);
  const int async_fd = eventfd(0, EFD_CLOEXEC);
  for (int member = 0; member < 3; member++) world.nic(member).gid = {};
  world.context.real[kDefault]->async_fd = async_fd;
  world.context.watch[kDefault] = &watch;
  CompletionQueue* cq = world.make_cq();

  ScriptedLoop control;
  LazyLoop worker;
  control::Coordinator coordinator(control, worker);
  coordinator.context_add(&world.context);
  told_of = cq;
  control.callbacks.at(watch.fd)(0);
  EXPECT_EQ(control.timers.size(), 1u);
  coordinator.context_forget(&world.context);
  EXPECT_TRUE(control.timers.empty());
  EXPECT_TRUE(control.callbacks.empty());

  below = before;
  close(watch.fd);
  close(async_fd);
}

}  // namespace
}  // namespace shift::ops

// Objects that are left on a device when it is closed, or that many threads make at a time.
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "group/test/fake.h"
#include "ops/completion_queues.h"
#include "ops/entry.h"
#include "ops/test/runtime.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::kDefault;
using group::World;

// A loop in which descriptors are readable when the test says so, and no time passes.
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

// After an event of a CQ that perhaps no thread polls, the control thread looks at the CQ again
// later. Once the context is closed it does not.
TEST(ClosedContext, ItsQueuesAreNotLookedAtAgain) {
  World world;
  StockVerbs table = *group::fake_stock();
  table.get_cq_event = [](ibv_comp_channel*, ibv_cq** cq, void** owner) {
    if (told_of == nullptr) return -1;
    *cq = told_of->real[kDefault];
    *owner = std::exchange(told_of, nullptr);
    return 0;
  };
  table.ack_cq_events = [](ibv_cq*, unsigned) {};
  const StockVerbs* const before = std::exchange(stock, &table);
  ibv_comp_channel watch{};
  watch.fd = eventfd(0, EFD_CLOEXEC);
  const int async_fd = eventfd(0, EFD_CLOEXEC);
  for (int member = 0; member < 3; member++) world.nic(member).gid = {};
  world.context.members[kDefault].real->async_fd = async_fd;
  world.context.members[kDefault].watch = &watch;
  CompletionQueue* cq = world.make_cq();

  ScriptedLoop control;
  LazyLoop worker;
  group::FakeCommands commands(worker);
  control::Coordinator coordinator(control, commands);
  coordinator.context_add(&world.context, group::ports_up(world.context));
  told_of = cq;
  control.callbacks.at(watch.fd)(0);
  EXPECT_EQ(control.timers.size(), 1u);
  // The driver lets go of the device: the watch descriptor would be "ready" for ever.
  control.callbacks.at(watch.fd)(EPOLLERR);
  EXPECT_FALSE(control.callbacks.contains(watch.fd));
  coordinator.context_forget(&world.context);
  EXPECT_TRUE(control.timers.empty());
  EXPECT_TRUE(control.callbacks.empty());

  stock = before;
  close(watch.fd);
  close(async_fd);
}

// A loop that runs nothing in the background and takes calls from several threads.
class DeafLoop final : public LazyLoop {
 public:
  bool call_soon(Task) noexcept override { return true; }
  bool call_and_wait(const Task& task) noexcept override {
    task();
    return true;
  }
};

TEST(Channel, IsBusyByACountThatNobodyIsChanging) {
  World world;
  DeafLoop control, worker;
  group::FakeCommands commands(worker);
  control::Coordinator coordinator(control, commands);
  control::Runtime runtime{control, coordinator};
  in_use = &runtime;
  auto* channel = new group::CompletionChannel;
  channel->channel = {};
  channel->channel.context = world.context.handle();
  channel->channel.fd = -1;
  channel->channel.refcnt = 1;
  std::unique_lock changing(world.context.mutex);
  std::atomic<bool> begun{false};
  std::atomic<int> error{-1};
  std::thread destroyer([&] {
    begun = true;
    error = destroy_comp_channel(&channel->channel);
  });
  while (!begun) std::this_thread::yield();
  for (int i = 0; i < 1000 && error == -1; i++) std::this_thread::yield();
  channel->channel.refcnt = 0;
  changing.unlock();
  destroyer.join();
  EXPECT_EQ(error, 0);
  in_use = nullptr;
}

// The channel's count of its queues says in the end whether the channel may be destroyed. (The
// thread sanitizer sees it when the code counts without a lock.)
TEST(Channel, ManyThreadsMakeAndDestroyQueuesOnIt) {
  World world;
  group::CompletionChannel channel;
  DeafLoop control, worker;
  group::FakeCommands commands(worker);
  control::Coordinator coordinator(control, commands);
  control::Runtime runtime{control, coordinator};
  in_use = &runtime;
  channel.channel = {};
  channel.channel.context = world.context.handle();
  // The threads make queues in batches, so that the counting is a good part of the work.
  auto make_and_destroy = [&] {
    group::FakeCq real;
    real.cq.context = world.context.members[kDefault].real;
    for (int batch = 0; batch < 10; batch++) {
      std::vector<CompletionQueue*> made;
      for (int i = 0; i < 500; i++) {
        auto cq = std::make_unique<CompletionQueue>();
        cq->real[kDefault] = &real.cq;
        made.push_back(publish_cq(std::move(cq), world.context, &channel.channel, nullptr));
      }
      for (CompletionQueue* cq : made) EXPECT_EQ(destroy_cq(&cq->cq), 0);
    }
  };
  std::thread other(make_and_destroy);
  make_and_destroy();
  other.join();
  EXPECT_EQ(channel.channel.refcnt, 0);
  in_use = nullptr;
}

}  // namespace
}  // namespace shift::ops

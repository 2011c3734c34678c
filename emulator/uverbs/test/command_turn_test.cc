// How long commands to the firmware take under a fault, and what goes on meanwhile.
#include "uverbs/command_turn.h"

#include <gtest/gtest.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <future>
#include <set>
#include <string>
#include <thread>

#include "fabric/fault.h"
#include "uverbs/command.h"
#include "uverbs/ioctl.h"
#include "uverbs/test/device.h"

namespace cxemu {
namespace {

class CommandTurnTest : public ::testing::Test {
 protected:
  void fault(const std::string& text) {
    FaultCommand command;
    std::string error;
    ASSERT_TRUE(fault_parse(*fabric_.fabric, text, &command, &error)) << error;
    // An engine sees a kill by itself; the fake one is told.
    std::unique_lock lock(engine_.lock());
    if (command.kind == FaultCommand::Kind::kKill) engine_.log.dead = true;
    lock.unlock();
    ASSERT_TRUE(fault_apply(*fabric_.fabric, nic(), command, monotonic_ns(), &error)) << error;
  }
  FabricNic& nic() { return *fabric_.fabric.nic(0, 0); }
  // Runs in another thread; returns when it waits for the firmware.
  template <typename Run>
  std::future<int> held(const Run& run) {
    const uint64_t before = nic().held_commands;
    std::future<int> result = std::async(std::launch::async, run);
    while (nic().held_commands == before && open(result)) std::this_thread::yield();
    EXPECT_GT(nic().held_commands, before);
    return result;
  }
  static bool open(const std::future<int>& result) {
    return result.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  }
  int region(uint32_t pd) {
    uint32_t handle;
    return device_.mr(pd, IBV_ACCESS_LOCAL_WRITE, &handle);
  }

  TestFabric fabric_;
  FakeEngine engine_;
  Device device_{&engine_, &fabric_.fabric};
};

TEST_F(CommandTurnTest, SlowCommandsTakeAsLongAsTheFaultSays) {
  const uint32_t pd = device_.pd();
  fault("slow-commands=20");
  const uint64_t begun_ns = monotonic_ns();
  std::future<int> result = held([&] { return region(pd); });
  fault("link-down");  // ends no wait
  EXPECT_EQ(result.get(), 0);
  EXPECT_GE(monotonic_ns() - begun_ns, 20'000'000u);
  EXPECT_EQ(device_.pd_free(pd), EBUSY);
  EXPECT_GE(monotonic_ns() - begun_ns, 40'000'000u);
  EXPECT_EQ(nic().held_commands, 2u);
  fault("slow-commands=0");
  device_.pd();
  EXPECT_EQ(nic().held_commands, 2u);
}

TEST_F(CommandTurnTest, AHungCommandHoldsNoLockAndRunsWhenTheNicIsHealed) {
  const uint32_t pd = device_.pd();
  for (const char* end : {"heal", "slow-commands=0", "slow-commands=0.001"}) {
    fault("hang-commands");
    const size_t objects = device_.context->objects().size();
    std::future<int> result = held([&] { return region(pd); });
    {
      const std::lock_guard lock(engine_.lock());  // would never be had
      EXPECT_EQ(device_.context->objects().size(), objects) << "it takes effect at its end";
    }
    fault(end);
    EXPECT_EQ(result.get(), 0) << end;
    EXPECT_EQ(device_.context->objects().size(), objects + 1);
    fault("heal");
  }
}

TEST_F(CommandTurnTest, AKilledNicLetsGo) {
  const uint32_t pd = device_.pd(), other = device_.pd();
  fault("hang-commands");
  std::future<int> make = held([&] { return region(pd); });
  std::future<int> destroy = held([&] { return device_.pd_free(other); });
  fault("kill");
  EXPECT_EQ(make.get(), EIO);
  EXPECT_EQ(destroy.get(), 0);
  fault("revive");
  EXPECT_EQ(region(pd), EIO) << "at once: this context remains dead";
}

TEST_F(CommandTurnTest, OtherNicsDoNotWait) {
  TestPages pages;
  fault("hang-commands");
  auto other =
      Context::open(engine_, fabric_.fabric, fabric_.fabric.nic(0, 1), nullptr, pages.data());
  ib_uverbs_get_context_resp answer{};
  mlx5_ib_alloc_ucontext_resp driver;
  mlx5_ib_alloc_ucontext_req_v2 request{};
  request.total_num_bfregs = 16;
  std::future<int> result = held([&] { return device_.pd_free(device_.pd()); });
  EXPECT_EQ(
      Sender(other.get())
          .plain(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, &answer, request, &driver),
      0);
  close(static_cast<int>(answer.async_fd));
  other.reset();
  fault("heal");
  EXPECT_EQ(result.get(), 0);
}

TEST_F(CommandTurnTest, OpeningAndClosingWait) {
  TestPages pages;
  fault("hang-commands");
  auto late =
      Context::open(engine_, fabric_.fabric, &nic(), nullptr, pages.data());  // only opens a file
  ib_uverbs_get_context_resp answer{};
  std::future<int> start = held([&] {
    mlx5_ib_alloc_ucontext_resp driver;
    mlx5_ib_alloc_ucontext_req_v2 request{};
    request.total_num_bfregs = 16;
    return Sender(late.get())
        .plain(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, &answer, request, &driver);
  });
  fault("heal");
  EXPECT_EQ(start.get(), 0);
  fault("hang-commands");
  std::future<int> end = held([&] {
    late.reset();
    return 0;
  });
  EXPECT_TRUE(open(end));
  fault("heal");
  EXPECT_EQ(end.get(), 0);
  close(static_cast<int>(answer.async_fd));
  // A file that was opened only has nothing of the firmware's.
  late = Context::open(engine_, fabric_.fabric, &nic(), nullptr, pages.data());
  fault("hang-commands");
  late.reset();
  fault("heal");
}

// Everything else is a command to the firmware.
TEST_F(CommandTurnTest, WhatTheKernelAnswersByItself) {
  std::set<std::string> commands;
  for (const auto table : {device_commands(), memory_commands(), cq_commands(), srq_commands(),
                           xrc_commands(), qp_commands()})
    for (const Command& command : table)
      if ((command.traits & kKernelAnswers) != 0) commands.insert(command.name);
  EXPECT_EQ(commands, (std::set<std::string>{"create_ah", "create_comp_channel", "destroy_ah",
                                             "query_device"}));
  std::set<std::pair<int, int>> methods;
  for (const auto table : {context_methods(), create_methods(), memory_methods()})
    for (const Method& method : table)
      if ((method.traits & kKernelAnswers) != 0) methods.emplace(method.object, method.method);
  EXPECT_EQ(methods, (std::set<std::pair<int, int>>{
                         {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT},
                         {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC},
                         {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY},
                         {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR},
                         {UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR},
                         {UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY}}));
  fault("hang-commands");
  ib_uverbs_query_device_resp answer;
  EXPECT_EQ(device_.send().plain(IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_query_device{}, &answer),
            0);
  close(device_.channel());
  EXPECT_EQ(nic().held_commands, 0u);
  fault("heal");
}

// In a child of fork() the parent's device answers only what needs no NIC of the process.
TEST_F(CommandTurnTest, AChildWaitsUntilTheNicIsDead) {
  fault("hang-commands");
  device_.context->orphan();
  ib_uverbs_query_port request{};
  request.port_num = 1;
  ib_uverbs_query_port_resp answer;
  std::future<int> result =
      held([&] { return device_.send().plain(IB_USER_VERBS_CMD_QUERY_PORT, request, &answer); });
  EXPECT_TRUE(open(result));
  fault("kill");
  EXPECT_EQ(result.get(), 0);
}

}  // namespace
}  // namespace cxemu

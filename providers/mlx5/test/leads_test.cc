// The front before a stock library that notes what it is given. This program stands in for the
// front of libibverbs.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <string>
#include <vector>

#include "linked_caller.h"
#include "util/virtual_objects.h"

namespace {

ibv_device virtual_device, real_device;
ibv_context virtual_context, real_context;
ibv_pd virtual_pd, real_pd;
ibv_cq virtual_cq, real_cq;
ibv_srq virtual_srq, real_srq;
ibv_qp virtual_qp, real_qp;
shift::DirectVerbs mode;
bool can_let_go;
int let_go_count;
std::vector<std::string> lines;

template <auto* is_virtual, auto* real, typename Object>
Object* real_of(Object* object) {
  return object == is_virtual ? real : object;
}

template <typename Object>
bool let_go(Object*) {
  if (can_let_go) let_go_count++;
  return can_let_go;
}

constexpr shift::VirtualObjects kVirtualObjects = {
    .size = sizeof(shift::VirtualObjects),
    .device = real_of<&virtual_device, &real_device>,
    .context = real_of<&virtual_context, &real_context>,
    .pd = real_of<&virtual_pd, &real_pd>,
    .cq = real_of<&virtual_cq, &real_cq>,
    .srq = real_of<&virtual_srq, &real_srq>,
    .qp = real_of<&virtual_qp, &real_qp>,
    .mode = [] { return mode; },
    .warn = [](const char* line) { lines.emplace_back(line); },
    .let_go_qp = let_go,
    .let_go_cq = let_go,
    .let_go_srq = let_go,
    .make_qp = nullptr,
    .own_list = nullptr,
};

void* front() {
  static void* const handle = dlopen("libmlx5.so.1", RTLD_NOW);
  EXPECT_NE(handle, nullptr) << dlerror();
  return handle;
}

// The function of that name and version, with the type of `like`.
template <typename Function>
Function* find(const char* name, const char* version, Function*) {
  auto* function = reinterpret_cast<Function*>(dlvsym(front(), name, version));
  EXPECT_NE(function, nullptr) << name << "@" << version;
  return function;
}

const void* argument() {
  return *static_cast<const void**>(dlsym(front(), "fake_argument"));
}

class Leads : public ::testing::Test {
 protected:
  Leads() {
    mode = shift::DirectVerbs::kRefuse;
    can_let_go = true;
    let_go_count = 0;
    lines.clear();
  }
};

void init_obj(const char* version, int number) {
  auto* function =
      find("mlx5dv_init_obj", version, static_cast<decltype(&mlx5dv_init_obj)>(nullptr));
  mlx5dv_obj obj{};
  obj.cq.in = &virtual_cq;
  // The call does not ask for the queue pair, so this must be ignored.
  obj.qp.in = &virtual_qp;
  mode = shift::DirectVerbs::kRefuse;
  EXPECT_EQ(function(&obj, MLX5DV_OBJ_CQ), EOPNOTSUPP);
  mode = shift::DirectVerbs::kAnswer;
  EXPECT_EQ(function(&obj, MLX5DV_OBJ_CQ), EOPNOTSUPP);
  mode = shift::DirectVerbs::kUnprotected;
  EXPECT_EQ(function(&obj, MLX5DV_OBJ_CQ), 0);
  EXPECT_EQ(argument(), &real_cq);
  EXPECT_EQ(obj.cq.in, &virtual_cq);
  EXPECT_EQ(let_go_count, 1);
  EXPECT_EQ(*static_cast<int*>(dlsym(front(), "fake_version")), number);
  EXPECT_EQ(function(&obj, MLX5DV_OBJ_CQ | MLX5DV_OBJ_QP), 0);
  EXPECT_EQ(let_go_count, 3);
  can_let_go = false;
  EXPECT_EQ(function(&obj, MLX5DV_OBJ_QP), EOPNOTSUPP);
  EXPECT_EQ(function(&obj, MLX5DV_OBJ_CQ), EOPNOTSUPP);
  can_let_go = true;
  let_go_count = 0;
}

TEST_F(Leads, EachVersionOfInitObjLeadsToItsOwn) {
  init_obj("MLX5_1.0", 0);
  init_obj("MLX5_1.2", 2);
}

// This program looks the functions up by name, and is linked with none of them.
TEST_F(Leads, WhoIsNotLinkedWithQueuesHearsTheTruth) {
  auto* function =
      find("mlx5dv_is_supported", "MLX5_1.8", static_cast<decltype(&mlx5dv_is_supported)>(nullptr));
  EXPECT_TRUE(function(&real_device));
  for (const auto each : {shift::DirectVerbs::kRefuse, shift::DirectVerbs::kAnswer,
                          shift::DirectVerbs::kUnprotected}) {
    mode = each;
    EXPECT_TRUE(function(&virtual_device));
    EXPECT_EQ(argument(), &real_device);
  }
  EXPECT_TRUE(lines.empty());
}

TEST_F(Leads, WhoIsLinkedWithQueuesIsToldThatThereAreNone) {
  EXPECT_TRUE(linked_is_supported(&real_device));
  EXPECT_TRUE(lines.empty());
  EXPECT_FALSE(linked_is_supported(&virtual_device));
  EXPECT_FALSE(linked_is_supported(&virtual_device));
  EXPECT_EQ(lines.size(), 1U);
  for (const auto other : {shift::DirectVerbs::kAnswer, shift::DirectVerbs::kUnprotected}) {
    mode = other;
    EXPECT_TRUE(linked_is_supported(&virtual_device));
    EXPECT_EQ(argument(), &real_device);
  }
}

// A region registered so would belong to one NIC.
TEST_F(Leads, VirtualDevicesHaveNoDataDirectPath) {
  auto* function = find("mlx5dv_get_data_direct_sysfs_path", "MLX5_1.25",
                        static_cast<int (*)(ibv_context*, char*, size_t)>(nullptr));
  EXPECT_EQ(function(&virtual_context, nullptr, 0), ENODEV);
  ibv_context other;
  EXPECT_EQ(function(&other, nullptr, 0), 0);
  EXPECT_EQ(argument(), &other);
  mode = shift::DirectVerbs::kUnprotected;
  EXPECT_EQ(function(&virtual_context, nullptr, 0), 0);
  EXPECT_EQ(argument(), &real_context);
}

TEST_F(Leads, WhatBypassesIsRefusedAndToldOnce) {
  auto* function = find("mlx5dv_devx_qp_modify", "MLX5_1.8",
                        static_cast<decltype(&mlx5dv_devx_qp_modify)>(nullptr));
  EXPECT_EQ(function(&virtual_qp, nullptr, 0, nullptr, 0), EOPNOTSUPP);
  EXPECT_EQ(function(&virtual_qp, nullptr, 0, nullptr, 0), EOPNOTSUPP);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("mlx5dv_devx_qp_modify"), std::string::npos) << lines[0];
  EXPECT_EQ(function(&real_qp, nullptr, 0, nullptr, 0), 0);
  EXPECT_EQ(argument(), &real_qp);
  mode = shift::DirectVerbs::kUnprotected;
  EXPECT_EQ(function(&virtual_qp, nullptr, 0, nullptr, 0), 0);
  EXPECT_EQ(argument(), &real_qp);
  EXPECT_EQ(let_go_count, 1);
}

TEST_F(Leads, DataDirectOfOneNicIsRefused) {
  auto* function =
      find("mlx5dv_reg_dmabuf_mr", "MLX5_1.25",
           static_cast<ibv_mr* (*)(ibv_pd*, uint64_t, size_t, uint64_t, int, int, int)>(nullptr));
  errno = 0;
  EXPECT_EQ(function(&virtual_pd, 0, 1, 0, -1, 0, 1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_NE(function(&real_pd, 0, 1, 0, -1, 0, 1), nullptr);
  EXPECT_EQ(argument(), &real_pd);
}

TEST_F(Leads, AFunctionOfTheFutureIsPassedThrough) {
  EXPECT_EQ(find("mlx5dv_of_the_future", "MLX5_1.30", static_cast<int (*)(int)>(nullptr))(41), 42);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const shift::VirtualObjects*
shift_virtual_objects() {
  return &kVirtualObjects;
}

// The ways in which programs load the front: by dlopen as NCCL and TensorPipe do, repeatedly, with
// fork, from many threads at once, and with the layer switched off.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#undef ibv_get_device_list

namespace {

std::string real_path(const char* path) {
  return std::filesystem::canonical(path);
}

std::string object_of(void* address) {
  Dl_info info = {};
  const bool found = address != nullptr && dladdr(address, &info) != 0;
  return found ? real_path(info.dli_fname) : "nowhere";
}

const std::string kFront = real_path(FRONT_DIR "/libibverbs.so.1");

struct Api {
  explicit Api(void* handle) {
    get = reinterpret_cast<decltype(get)>(dlsym(handle, "ibv_get_device_list"));
    free = reinterpret_cast<decltype(free)>(dlsym(handle, "ibv_free_device_list"));
    open = reinterpret_cast<decltype(open)>(dlsym(handle, "ibv_open_device"));
    close = reinterpret_cast<decltype(close)>(dlsym(handle, "ibv_close_device"));
  }
  // Whether the first device is virtual: a real one has no node and cannot be opened.
  bool opens_first() const {
    int count = 0;
    ibv_device** list = get(&count);
    if (list == nullptr || count != 2) return false;
    ibv_context* context = open(list[0]);
    if (context != nullptr) close(context);
    free(list);
    return context != nullptr;
  }

  ibv_device** (*get)(int*);
  void (*free)(ibv_device**);
  ibv_context* (*open)(ibv_device*);
  int (*close)(ibv_context*);
};

// Runs first (GoogleTest puts suites of this name first), so that nothing is decided yet.
TEST(LoadDeathTest, disabled_layer_leaves_real_devices) {
  EXPECT_EXIT(
      {
        setenv("SHIFT_DISABLE", "1", 1);
        const Api api(dlopen("libibverbs.so.1", RTLD_NOW));
        int count = 0;
        ibv_device** list = api.get(&count);
        const bool right = list != nullptr && count == 2 && api.open(list[0]) == nullptr;
        api.free(list);
        _exit(right ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(LoadDeathTest, exit_after_use_is_clean) {
  EXPECT_EXIT(
      {
        const Api api(dlopen("libibverbs.so.1", RTLD_NOW));
        exit(api.opens_first() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(LoadTest, dlvsym_as_nccl_does_it) {
  void* handle = dlopen("libibverbs.so", RTLD_NOW);
  if (handle == nullptr) handle = dlopen("libibverbs.so.1", RTLD_NOW);
  ASSERT_NE(handle, nullptr) << dlerror();
  const struct {
    const char* name;
    const char* version;
  } kSymbols[] = {{"ibv_get_device_list", "IBVERBS_1.1"}, {"ibv_open_device", "IBVERBS_1.1"},
                  {"ibv_fork_init", "IBVERBS_1.1"},       {"ibv_event_type_str", "IBVERBS_1.1"},
                  {"ibv_reg_mr_iova2", "IBVERBS_1.8"},    {"ibv_query_ece", "IBVERBS_1.10"},
                  {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},  {"ibv_open_device", "IBVERBS_1.0"},
                  {"ibv_create_qp", "IBVERBS_1.1"},       {"ibv_set_ece", "IBVERBS_1.10"}};
  for (const auto& [name, version] : kSymbols) {
    EXPECT_EQ(object_of(dlvsym(handle, name, version)), kFront) << name << "@" << version;
  }
  // Looking up a symbol that the stock library lacks has to fail here as well.
  EXPECT_EQ(dlvsym(handle, "ibv_open_device", "IBVERBS_1.40"), nullptr);
  EXPECT_EQ(dlvsym(handle, "ibv_no_such_verb", "IBVERBS_1.15"), nullptr);
  // This one is younger than the stock library may be.
  EXPECT_EQ(object_of(dlvsym(handle, "ibv_query_port_speed", "IBVERBS_1.16")), kFront);
  EXPECT_TRUE(Api(handle).opens_first());
}

TEST(LoadTest, dlsym_as_tensorpipe_does_it) {
  void* handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  for (const char* name : {"ibv_get_device_list", "ibv_open_device", "ibv_create_srq", "ibv_reg_mr",
                           "ibv_wc_status_str", "ibv_query_gid"}) {
    EXPECT_EQ(object_of(dlsym(handle, name)), kFront) << name;
  }
}

TEST(LoadTest, trampolines_arrive_in_the_stock_library) {
  void* handle = dlopen("libibverbs.so.1", RTLD_NOW);
  auto status =
      reinterpret_cast<const char* (*)(ibv_wc_status)>(dlsym(handle, "ibv_wc_status_str"));
  const char* text = status(IBV_WC_RETRY_EXC_ERR);
  EXPECT_STREQ(text, "transport retry counter exceeded");
  EXPECT_EQ(object_of(const_cast<char*>(text)), real_path(SHIFT_STOCK_LIBIBVERBS));
}

// Vendor plug-ins need these from whichever object of this SONAME they are bound to.
TEST(LoadTest, private_symbols_of_any_version) {
  void* handle = dlopen("libibverbs.so.1", RTLD_NOW);
  for (const char* name : {"verbs_set_ops", "ibv_cmd_create_qp", "verbs_open_device",
                           "verbs_allow_disassociate_destroy"}) {
    EXPECT_EQ(object_of(dlsym(handle, name)), kFront) << name;
  }
  void* plugin = dlopen("libmlx5.so.1", RTLD_NOW);
  EXPECT_NE(plugin, nullptr) << dlerror();
}

TEST(LoadTest, dlclose_cycles_and_use_after_the_last_one) {
  void* handle = nullptr;
  for (int cycle = 0; cycle < 20; ++cycle) {
    handle = dlopen("libibverbs.so.1", RTLD_NOW);
    ASSERT_NE(handle, nullptr);
    EXPECT_TRUE(Api(handle).opens_first());
    dlclose(handle);
  }
  handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(handle, nullptr) << "the front was unloaded";
}

TEST(LoadTest, child_of_fork_goes_on) {
  const Api api(dlopen("libibverbs.so.1", RTLD_NOW));
  ASSERT_TRUE(api.opens_first());
  const pid_t child = fork();
  if (child == 0) _exit(api.opens_first() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(api.opens_first());
}

TEST(LoadTest, many_threads_ask_at_once) {
  const Api api(dlopen("libibverbs.so.1", RTLD_NOW));
  std::vector<std::thread> threads;
  std::vector<int> counts(8, -1);
  for (int& result : counts) {
    threads.emplace_back([&api, &result] {
      int count = 0;
      ibv_device** list = api.get(&count);
      if (list != nullptr) api.free(list);
      result = count;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int count : counts) EXPECT_EQ(count, 2);
}

TEST(LoadTest, device_list_keeps_errno_and_dlerror) {
  const Api api(dlopen("libibverbs.so.1", RTLD_NOW));
  dlerror();
  int count = 0;
  ibv_device** list = api.get(&count);
  ASSERT_NE(list, nullptr);
  errno = EXDEV;
  api.free(list);
  EXPECT_EQ(errno, EXDEV);
  EXPECT_EQ(dlerror(), nullptr);
  EXPECT_NE(list = api.get(nullptr), nullptr);
  api.free(list);
}

}  // namespace

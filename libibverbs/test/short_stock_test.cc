// A front before a stock library that lacks most of the functions for which the front was built,
// and before none at all. The front loads, existing functions work, and only a call of a missing
// function ends the program, with a message about it.
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace {

template <typename Result>
Result call(const char* name) {
  void* handle = dlopen("libibverbs.so.1", RTLD_NOW);
  if (handle == nullptr) ADD_FAILURE() << dlerror();
  return reinterpret_cast<Result (*)(long)>(dlsym(handle, name))(0x1234);
}

TEST(ShortStockDeathTest, call_of_a_missing_function_names_it) {
  EXPECT_DEATH(call<int>("ibv_wc_status_str"), "SHIFT front.*no ibv_wc_status_str");
  EXPECT_DEATH(call<int>("ibv_cmd_create_qp"), "SHIFT front.*no ibv_cmd_create_qp");
}

// Both packages and people can put a front where the stock library belongs.
TEST(ShortStockDeathTest, a_front_in_the_place_of_the_stock_library_says_so) {
  EXPECT_DEATH(dlopen(FRONT_OF_ITSELF, RTLD_NOW), "SHIFT front.*in the place of the stock library");
}

TEST(ShortStockTest, what_is_there_works) {
  EXPECT_EQ(call<int>("ibv_fork_init"), 4711);
  // The private version differs from the one the front was built with.
  EXPECT_EQ(call<int>("verbs_init_cq"), 4712);
}

}  // namespace

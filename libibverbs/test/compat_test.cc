// Programs built against IBVERBS_1.0. Their entry points remain the stock library's. These call the
// public functions and so find virtual devices, unless the stock library binds to itself.
#include <gtest/gtest.h>

#include <cstdlib>

#include "double.h"

#undef ibv_get_device_list

extern "C" {
ibv_device** old_get_device_list(int* count);
void old_free_device_list(ibv_device** list);
const char* old_get_device_name(ibv_device* device);
ibv_context* old_open_device(ibv_device* device);
int old_close_device(ibv_context* context);
ibv_pd* old_alloc_pd(ibv_context* context);
__asm__(".symver old_get_device_list, ibv_get_device_list@IBVERBS_1.0");
__asm__(".symver old_free_device_list, ibv_free_device_list@IBVERBS_1.0");
__asm__(".symver old_get_device_name, ibv_get_device_name@IBVERBS_1.0");
__asm__(".symver old_open_device, ibv_open_device@IBVERBS_1.0");
__asm__(".symver old_close_device, ibv_close_device@IBVERBS_1.0");
__asm__(".symver old_alloc_pd, ibv_alloc_pd@IBVERBS_1.0");
}

namespace shift::test {
namespace {

TEST(CompatTest, old_program_sees_the_same_devices) {
  int count = 0;
  ibv_device** list = old_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(count, 2);
  EXPECT_STREQ(old_get_device_name(list[0]), "mlx5_0");
  EXPECT_STREQ(old_get_device_name(list[1]), "mlx5_1");

  ibv_context* context = old_open_device(list[0]);
  ASSERT_NE(context, nullptr);
  // The double has only one context, so what an old program does is recorded there.
  int new_count = 0;
  ibv_device** new_list = ibv_get_device_list(&new_count);
  const ibv_context* virtual_context = ibv_open_device(new_list[0]);
  ibv_pd* pd = old_alloc_pd(context);
  EXPECT_NE(pd, nullptr);
  EXPECT_EQ(last_verb(virtual_context), k_alloc_pd);
  EXPECT_EQ(old_close_device(context), k_close_device);
  // The stock library takes the double's answer for an error and then keeps its wrappers.
  free(pd);
  free(context);
  ibv_free_device_list(new_list);
  old_free_device_list(list);
}

}  // namespace
}  // namespace shift::test

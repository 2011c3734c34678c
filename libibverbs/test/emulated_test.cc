// The front with the real provider on emulated NICs: stock functions that use the private part of a
// context must get the real one, and answer as they do without the layer.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#undef ibv_get_device_list

extern "C" int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index,
                                  unsigned* type);

namespace {

template <typename Function>
Function stock(Function, const char* name) {
  static void* handle = dlopen(SHIFT_STOCK_LIBIBVERBS, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function>(dlsym(handle, name));
}

// The same device opened twice: once through the front, once past it.
class EmulatedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    list_ = ibv_get_device_list(&count_);
    stock_list_ = stock(&ibv_get_device_list, "ibv_get_device_list")(&stock_count_);
    ASSERT_NE(list_, nullptr);
    ASSERT_NE(stock_list_, nullptr);
    ASSERT_GE(stock_count_, 2) << "run this under cxemu exec";
    context_ = ibv_open_device(list_[0]);
    stock_context_ = stock(&ibv_open_device, "ibv_open_device")(stock_list_[0]);
    ASSERT_NE(context_, nullptr);
    ASSERT_NE(stock_context_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_close_device(context_), 0);
    EXPECT_EQ(stock(&ibv_close_device, "ibv_close_device")(stock_context_), 0);
    ibv_free_device_list(list_);
    stock(&ibv_free_device_list, "ibv_free_device_list")(stock_list_);
  }

  int count_ = 0, stock_count_ = 0;
  ibv_device** list_ = nullptr;
  ibv_device** stock_list_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_context* stock_context_ = nullptr;
};

TEST_F(EmulatedTest, protected_devices_look_like_the_real_ones) {
  ASSERT_EQ(count_, stock_count_);
  for (int i = 0; i < count_; ++i) {
    EXPECT_NE(list_[i], stock_list_[i]) << "not virtual: " << list_[i]->name;
    EXPECT_STREQ(ibv_get_device_name(list_[i]), stock_list_[i]->name);
    EXPECT_STREQ(list_[i]->dev_name, stock_list_[i]->dev_name);
    EXPECT_STREQ(list_[i]->dev_path, stock_list_[i]->dev_path);
    EXPECT_STREQ(list_[i]->ibdev_path, stock_list_[i]->ibdev_path);
    EXPECT_EQ(list_[i]->node_type, stock_list_[i]->node_type);
    EXPECT_EQ(list_[i]->transport_type, stock_list_[i]->transport_type);
    EXPECT_EQ(ibv_get_device_guid(list_[i]),
              stock(&ibv_get_device_guid, "ibv_get_device_guid")(stock_list_[i]));
    EXPECT_EQ(ibv_get_device_index(list_[i]),
              stock(&ibv_get_device_index, "ibv_get_device_index")(stock_list_[i]));
    // Stock providers read beyond the public struct.
    const char zeros[512] = {};
    EXPECT_EQ(memcmp(list_[i] + 1, zeros, sizeof(zeros)), 0);
  }
}

TEST_F(EmulatedTest, gid_types_and_link_addresses) {
  for (unsigned index = 0; index < 4; ++index) {
    unsigned type = 77, stock_type = 78;
    EXPECT_EQ(ibv_query_gid_type(context_, 1, index, &type), 0);
    EXPECT_EQ(
        stock(&ibv_query_gid_type, "ibv_query_gid_type")(stock_context_, 1, index, &stock_type), 0);
    EXPECT_EQ(type, stock_type);
  }
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.sgid_index = 1;
  ASSERT_EQ(ibv_query_gid(context_, 1, 1, &attr.grh.dgid), 0);
  uint8_t mac[6] = {}, stock_mac[6] = {};
  uint16_t vid = 0, stock_vid = 0;
  const int result = ibv_resolve_eth_l2_from_gid(context_, &attr, mac, &vid);
  EXPECT_EQ(result, stock(&ibv_resolve_eth_l2_from_gid, "ibv_resolve_eth_l2_from_gid")(
                        stock_context_, &attr, stock_mac, &stock_vid));
  EXPECT_EQ(memcmp(mac, stock_mac, sizeof(mac)), 0);
}

TEST_F(EmulatedTest, address_of_a_received_datagram) {
  ibv_wc wc = {};
  ibv_grh grh = {};
  wc.wc_flags = IBV_WC_GRH;
  wc.src_qp = 5;
  grh.version_tclass_flow = htobe32(6u << 28);
  grh.hop_limit = 64;
  ASSERT_EQ(ibv_query_gid(context_, 1, 1, &grh.dgid), 0);
  grh.sgid = grh.dgid;
  ibv_ah_attr attr = {}, stock_attr = {};
  const int result = ibv_init_ah_from_wc(context_, 1, &wc, &grh, &attr);
  EXPECT_EQ(result, stock(&ibv_init_ah_from_wc, "ibv_init_ah_from_wc")(stock_context_, 1, &wc, &grh,
                                                                       &stock_attr));
  EXPECT_EQ(memcmp(&attr, &stock_attr, sizeof(attr)), 0);
}

// The stock library compares its own devices with the descriptor's; a virtual device would crash
// it.
TEST_F(EmulatedTest, import_finds_real_devices) {
  const std::string node = std::string("/dev/infiniband/") + list_[0]->dev_name;
  const int fd = open(node.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0) << strerror(errno);
  ibv_context* imported = ibv_import_device(fd);
  if (imported == nullptr) {
    EXPECT_NE(errno, 0);
    close(fd);
    return;
  }
  EXPECT_STREQ(imported->device->name, list_[0]->name);
  EXPECT_EQ(ibv_close_device(imported), 0);
}

// A verb that reaches the stock library past the front, as one does that the front does not know.
TEST_F(EmulatedTest, the_stock_library_refuses_virtual_objects) {
  ibv_pd* pd = ibv_alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  errno = 0;
  EXPECT_EQ(stock(&ibv_reg_dmabuf_mr, "ibv_reg_dmabuf_mr")(pd, 0, 4096, 0, 0, 0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

}  // namespace

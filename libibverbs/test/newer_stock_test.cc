// A front, built on the installed stock library, that runs before a much younger one, on emulated
// NICs: verbs that the front knows by name work on virtual objects, and others are refused.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace {

// As NCCL finds its verbs.
template <typename Function>
Function* verb(const char* name, const char* version) {
  void* front = dlopen("libibverbs.so.1", RTLD_NOW);
  if (front == nullptr) return nullptr;
  return reinterpret_cast<Function*>(dlvsym(front, name, version));
}

// ibv_mr_init_attr of IBVERBS_1.17.
struct RegionAttributes {
  size_t length;
  int access;
  uint64_t mask, iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  void *dma_handle, *buffer;
};

class NewerStock : public ::testing::Test {
 protected:
  void SetUp() override {
    list_ = ibv_get_device_list(nullptr);
    ASSERT_NE(list_, nullptr);
    ASSERT_NE(list_[0], nullptr) << "run this under cxemu exec";
    context_ = ibv_open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
    ASSERT_EQ(verbs_get_ctx(context_)->sz, sizeof(verbs_context));
    pd_ = ibv_alloc_pd(context_);
    ASSERT_NE(pd_, nullptr);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
    ibv_free_device_list(list_);
  }

  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  alignas(4096) std::array<char, 4096> buffer_{};
};

TEST_F(NewerStock, an_unknown_verb_is_refused) {
  auto* future = verb<int(ibv_context*)>("ibv_future_verb", "IBVERBS_1.41");
  ASSERT_NE(future, nullptr);
  EXPECT_EQ(future(context_), EOPNOTSUPP);
  ibv_context* again = ibv_open_device(list_[0]);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(future(again), EOPNOTSUPP);
  EXPECT_EQ(ibv_close_device(again), 0);
  EXPECT_EQ(future(context_), EOPNOTSUPP);
}

TEST_F(NewerStock, a_ports_speed_is_the_default_nics) {
  auto* query =
      verb<int(ibv_context*, uint32_t, uint64_t*)>("ibv_query_port_speed", "IBVERBS_1.16");
  ASSERT_NE(query, nullptr);
  uint64_t speed = 0;
  EXPECT_EQ(query(context_, 1, &speed), 0);
  EXPECT_EQ(speed, 4001u);
}

TEST_F(NewerStock, regions_are_registered_by_attributes) {
  constexpr uint64_t kIova = 1, kAddr = 2, kFd = 4, kFdOffset = 8, kDmaHandle = 16;
  auto* make = verb<ibv_mr*(ibv_pd*, RegionAttributes*)>("ibv_reg_mr_ex", "IBVERBS_1.15");
  ASSERT_NE(make, nullptr);
  RegionAttributes attr{};
  attr.length = buffer_.size();
  attr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
  attr.addr = buffer_.data();
  attr.iova = 0x10000;
  for (const uint64_t mask : {kAddr, kAddr | kIova}) {
    attr.mask = mask;
    ibv_mr* mr = make(pd_, &attr);
    ASSERT_NE(mr, nullptr) << strerror(errno);
    EXPECT_EQ(mr->pd, pd_);
    EXPECT_EQ(mr->addr, buffer_.data());
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  attr.fd = -1;
  errno = 0;
  ASSERT_EQ(ibv_reg_dmabuf_mr(pd_, 0, attr.length, attr.iova, attr.fd, attr.access), nullptr);
  const int no_buffer = errno;
  EXPECT_NE(no_buffer, EINVAL);
  const struct {
    uint64_t mask;
    int error;
  } kRefused[] = {{0, EINVAL},
                  {kIova, EINVAL},
                  {kAddr | kFd | kFdOffset | kIova, EINVAL},
                  {kFd | kIova, EINVAL},
                  {kFd | kFdOffset | kIova, no_buffer},
                  {kAddr | kDmaHandle, EOPNOTSUPP},
                  {kAddr | 1 << 6, EOPNOTSUPP}};
  for (const auto& [mask, error] : kRefused) {
    attr.mask = mask;
    errno = 0;
    EXPECT_EQ(make(pd_, &attr), nullptr) << mask;
    EXPECT_EQ(errno, error) << mask;
  }
}

TEST_F(NewerStock, a_buffers_region_is_one_of_memory) {
  auto* make = verb<ibv_mr*(ibv_pd*, void*, void*, size_t, int)>("ibv_reg_buf_mr", "IBVERBS_1.17");
  ASSERT_NE(make, nullptr);
  ibv_mr* mr = make(pd_, nullptr, buffer_.data(), buffer_.size(), IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr) << strerror(errno);
  EXPECT_EQ(mr->pd, pd_);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace

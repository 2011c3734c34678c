// Re-registration, memory windows, and resizing of completion queues: what reaches the NIC and what
// does not.
#include <gtest/gtest.h>

#include <functional>

#include "fabric/populate.h"
#include "uverbs/objects.h"
#include "uverbs/test/device.h"

namespace cxemu {
namespace {

class MemoryCommandsTest : public ::testing::Test {
 protected:
  int rereg(uint32_t mr, uint32_t flags,
            const std::function<void(ib_uverbs_rereg_mr*)>& fill = {}) {
    ib_uverbs_rereg_mr request{};
    request.mr_handle = mr;
    request.flags = flags;
    if (fill) fill(&request);
    ib_uverbs_rereg_mr_resp answer{};
    const int error = device_.send().plain(IB_USER_VERBS_CMD_REREG_MR, request, &answer);
    lkey_ = answer.lkey;
    rkey_ = answer.rkey;
    return error;
  }
  uint64_t at(size_t offset = 0) const {
    return reinterpret_cast<uint64_t>(device_.rings + offset);
  }
  int window(uint32_t pd, uint8_t type, uint32_t* handle) {
    ib_uverbs_alloc_mw request{};
    request.pd_handle = pd;
    request.mw_type = type;
    ib_uverbs_alloc_mw_resp answer{};
    const int error = device_.send().plain(IB_USER_VERBS_CMD_ALLOC_MW, request, &answer);
    *handle = answer.mw_handle;
    return error;
  }
  int window_free(uint32_t handle) {
    ib_uverbs_dealloc_mw request{};
    request.mw_handle = handle;
    return device_.send().plain(IB_USER_VERBS_CMD_DEALLOC_MW, request);
  }
  int resize(uint32_t cq, uint32_t cqe, const mlx5_ib_resize_cq& driver) {
    ib_uverbs_resize_cq request{};
    request.cq_handle = cq;
    request.cqe = cqe;
    NoDriver* nothing = nullptr;
    ib_uverbs_resize_cq_resp answer{};
    const int error =
        device_.send().plain(IB_USER_VERBS_CMD_RESIZE_CQ, request, &answer, driver, nothing);
    cqe_ = answer.cqe;
    return error;
  }

  TestFabric fabric_;
  FakeEngine engine_;
  Device device_{&engine_, &fabric_.fabric};
  uint32_t lkey_ = 0, rkey_ = 0, cqe_ = 0;  // answers
};

TEST_F(MemoryCommandsTest, ReregistrationPassesWhatItNames) {
  const uint32_t pd = device_.pd(), other = device_.pd();
  uint32_t mr;
  ASSERT_EQ(device_.mr(pd, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
  ASSERT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_PD, [&](auto* r) { r->pd_handle = other; }), 0);
  const RegionChange& seen = engine_.log.change;
  EXPECT_TRUE(seen.pd && !seen.access && !seen.translation);
  EXPECT_EQ(seen.new_pd, device_.context->objects().find<PdObject>(other)->number);
  EXPECT_EQ(lkey_, *engine_.log.keys.begin());
  EXPECT_EQ(rkey_, lkey_);
  EXPECT_EQ(device_.pd_free(pd), 0) << "the region left it";
  EXPECT_EQ(device_.pd_free(other), EBUSY);

  ASSERT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
                  [&](auto* r) {
                    r->start = r->hca_va = at(4096);
                    r->length = 100;
                    r->access_flags = IBV_ACCESS_REMOTE_READ;
                  }),
            0);
  EXPECT_TRUE(!seen.pd && seen.access && seen.translation);
  EXPECT_EQ(seen.start, at(4096));
  EXPECT_EQ(seen.length, 100u);
  EXPECT_EQ(seen.new_access, uint32_t{IBV_ACCESS_REMOTE_READ});
}

TEST_F(MemoryCommandsTest, ReregistrationChecks) {
  const uint32_t pd = device_.pd();
  uint32_t mr;
  ASSERT_EQ(device_.mr(pd, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
  const auto translation = [&](uint64_t start, uint64_t iova, uint64_t length) {
    return rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, [&](auto* r) {
      r->start = start;
      r->hca_va = iova;
      r->length = length;
    });
  };
  EXPECT_EQ(rereg(mr, 0), EINVAL);
  EXPECT_EQ(rereg(mr, 1u << 3), EOPNOTSUPP);
  EXPECT_EQ(rereg(mr + 50, IBV_REREG_MR_CHANGE_ACCESS), EINVAL);
  EXPECT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_PD, [](auto* r) { r->pd_handle = 77; }), EINVAL);
  EXPECT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS,
                  [](auto* r) { r->access_flags = IBV_ACCESS_REMOTE_WRITE; }),
            EINVAL);
  EXPECT_EQ(translation(at(), at(1), 10), EINVAL);
  EXPECT_EQ(translation(at(), at(), 0), EINVAL);
  EXPECT_EQ(translation(0x1000, 0x1000, 4096), EFAULT);
  engine_.log.next_error = EBUSY;
  EXPECT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS), EBUSY);
  EXPECT_FALSE(engine_.log.change.access) << "nothing was changed so far";
}

TEST_F(MemoryCommandsTest, ReadOnlyPagesCannotBecomeWritable) {
  if (!populate_supported()) GTEST_SKIP() << "this kernel does not tell what may be written";
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint32_t mr;
  ASSERT_EQ(device_.mr(device_.pd(), 0, &mr, reinterpret_cast<uint64_t>(page), 4096), 0);
  EXPECT_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS,
                  [](auto* r) { r->access_flags = IBV_ACCESS_LOCAL_WRITE; }),
            EFAULT);
  munmap(page, 4096);
}

TEST_F(MemoryCommandsTest, WindowsHoldTheirDomain) {
  const uint32_t pd = device_.pd();
  uint32_t first, second;
  ASSERT_EQ(window(pd, IBV_MW_TYPE_1, &first), 0);
  ASSERT_EQ(window(pd, IBV_MW_TYPE_2, &second), 0);
  EXPECT_EQ(engine_.log.windows.size(), 2u);
  uint32_t none;
  EXPECT_EQ(window(pd, 3, &none), EINVAL);
  EXPECT_EQ(window(pd, 0, &none), EINVAL);
  EXPECT_EQ(window(pd + 40, IBV_MW_TYPE_1, &none), EINVAL);
  EXPECT_EQ(device_.pd_free(pd), EBUSY);
  EXPECT_EQ(window_free(first), 0);
  EXPECT_EQ(window_free(first), EINVAL);
  engine_.log.dead = true;
  EXPECT_EQ(window(pd, IBV_MW_TYPE_1, &none), EIO);
  EXPECT_EQ(window_free(second), 0);
  EXPECT_EQ(device_.pd_free(pd), 0);
  EXPECT_TRUE(engine_.log.windows.empty());
}

TEST_F(MemoryCommandsTest, ClosingTheContextFreesWindows) {
  {
    Device other(&engine_, &fabric_.fabric);
    ib_uverbs_alloc_mw request{};
    request.pd_handle = other.pd();
    request.mw_type = IBV_MW_TYPE_1;
    ib_uverbs_alloc_mw_resp answer;
    ASSERT_EQ(other.send().plain(IB_USER_VERBS_CMD_ALLOC_MW, request, &answer), 0);
    EXPECT_EQ(engine_.log.windows.size(), 1u);
  }
  EXPECT_TRUE(engine_.log.windows.empty());
}

TEST_F(MemoryCommandsTest, ResizeMovesToTheNewRing) {
  const uint32_t cq = device_.cq(1);
  const auto good = mlx5_ib_resize_cq{at(8192), 64, 0, 0};
  ASSERT_EQ(resize(cq, 100, good), 0);
  EXPECT_EQ(cqe_, 127u);
  const CqConfig& config = (*engine_.log.cqs.begin())->config;
  EXPECT_EQ(config.buffer, device_.rings + 8192);
  EXPECT_EQ(config.cqe_count, 128u);

  EXPECT_EQ(resize(cq + 9, 7, good), EINVAL);
  EXPECT_EQ(resize(cq, 0, good), EINVAL);
  EXPECT_EQ(resize(cq, UINT32_MAX, good), EINVAL);
  EXPECT_EQ(resize(cq, 7, {at(8192), 128, 0, 0}), EINVAL);
  EXPECT_EQ(resize(cq, 7, {at(8193), 64, 0, 0}), EINVAL);
  EXPECT_EQ(resize(cq, 7, {at(8192), 64, 1, 0}), EINVAL);
  EXPECT_EQ(resize(cq, 7, {0x1000, 64, 0, 0}), EFAULT);
  engine_.log.next_error = EINVAL;
  EXPECT_EQ(resize(cq, 7, good), EINVAL) << "more is left than it could hold";
  EXPECT_EQ(config.cqe_count, 128u);
}

}  // namespace
}  // namespace cxemu

// Methods of the ioctl ABI, and what a device file's mapping shows.
#include "uverbs/ioctl.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <time.h>

#include <algorithm>

#include "fabric/gid.h"
#include "uverbs/test/device.h"

namespace cxemu {
namespace {

// One call, built as libibverbs builds it.
class Call {
 public:
  Call(uint16_t object, uint16_t method) : object_(object), method_(method) {}
  template <typename T>
  Call& in(uint16_t id, const T& value) {
    ib_uverbs_attr attribute{};
    attribute.attr_id = id;
    attribute.len = sizeof value;
    attribute.flags = UVERBS_ATTR_F_MANDATORY;
    static_assert(sizeof value <= sizeof attribute.data);
    memcpy(&attribute.data, &value, sizeof value);
    attributes_.push_back(attribute);
    return *this;
  }
  Call& object(uint16_t id, uint32_t handle = 0) {
    in(id, uint64_t{handle});
    attributes_.back().len = 0;
    return *this;
  }
  template <typename T>
  Call& out(uint16_t id, T* value) {
    in(id, reinterpret_cast<uint64_t>(value));
    attributes_.back().len = sizeof *value;
    return *this;
  }
  int run(Context& context) {
    std::vector<uint8_t> bytes(sizeof(ib_uverbs_ioctl_hdr) +
                               attributes_.size() * sizeof(ib_uverbs_attr));
    auto* header = reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes.data());
    header->length = static_cast<uint16_t>(bytes.size());
    header->object_id = object_;
    header->method_id = method_;
    header->num_attrs = static_cast<uint16_t>(attributes_.size());
    std::copy(attributes_.begin(), attributes_.end(), header->attrs);
    const int error = command_ioctl(context, RDMA_VERBS_IOCTL, header);
    std::copy_n(header->attrs, attributes_.size(), attributes_.begin());
    return error;
  }
  uint32_t result(uint16_t id) const {
    for (const ib_uverbs_attr& one : attributes_)
      if (one.attr_id == id) return static_cast<uint32_t>(one.data);
    return UINT32_MAX;
  }

 private:
  const uint16_t object_, method_;
  std::vector<ib_uverbs_attr> attributes_;
};

class IoctlTest : public ::testing::Test {
 protected:
  struct Dm {
    uint64_t offset = 0;
    uint16_t page = 0;
    uint32_t handle = 0;
    size_t at() const { return page * device_page_size() + offset; }
  };
  int allocate(uint64_t length, uint32_t log_alignment, Dm* dm) {
    Call call(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
    call.object(UVERBS_ATTR_ALLOC_DM_HANDLE)
        .in(UVERBS_ATTR_ALLOC_DM_LENGTH, length)
        .in(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, log_alignment)
        .out(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, &dm->offset)
        .out(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, &dm->page);
    const int error = call.run(*device_.context);
    dm->handle = call.result(UVERBS_ATTR_ALLOC_DM_HANDLE);
    return error;
  }
  int free(const Dm& dm) {
    return Call(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE)
        .object(UVERBS_ATTR_FREE_DM_HANDLE, dm.handle)
        .run(*device_.context);
  }
  int region(const Dm& dm, uint64_t offset, uint64_t length, uint32_t access, uint32_t* handle) {
    uint32_t lkey, rkey;
    Call call(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG);
    call.object(UVERBS_ATTR_REG_DM_MR_HANDLE)
        .in(UVERBS_ATTR_REG_DM_MR_OFFSET, offset)
        .in(UVERBS_ATTR_REG_DM_MR_LENGTH, length)
        .object(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, pd_)
        .in(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, access)
        .object(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm.handle)
        .out(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, &lkey)
        .out(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, &rkey);
    const int error = call.run(*device_.context);
    *handle = call.result(UVERBS_ATTR_REG_DM_MR_HANDLE);
    return error;
  }

  TestFabric fabric_;
  FakeEngine engine_;
  Device device_{&engine_, &fabric_.fabric};
  const uint32_t pd_ = device_.pd();
};

TEST_F(IoctlTest, WhatIsUnknownIsRefusedLikeByAnOlderKernel) {
  EXPECT_EQ(Call(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE).run(*device_.context),
            EPROTONOSUPPORT);
  EXPECT_EQ(Call(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR).run(*device_.context),
            EPROTONOSUPPORT);
  EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT).in(77, 1).run(*device_.context),
            EPROTONOSUPPORT)
      << "a mandatory attribute";
  EXPECT_EQ(Call(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE).run(*device_.context), EINVAL)
      << "an attribute is missing";
}

TEST_F(IoctlTest, TheGidTableIsReadAtOnceOrByEntry) {
  const auto entry = [this](uint32_t port, uint32_t index, ib_uverbs_gid_entry* found) {
    return Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY)
        .in(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, port)
        .in(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index)
        .in(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, uint32_t{0})
        .out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, found)
        .run(*device_.context);
  };
  ib_uverbs_gid_entry found{};
  ASSERT_EQ(entry(1, 3, &found), 0);
  uint8_t gid[16];
  nic_gid(device_.context->fabric_nic(), 3, gid);
  EXPECT_EQ(memcmp(found.gid, gid, sizeof gid), 0);
  EXPECT_EQ(found.gid_index, 3u);
  EXPECT_EQ(found.port_num, 1u);
  EXPECT_EQ(found.gid_type, uint32_t{IB_UVERBS_GID_TYPE_ROCE_V2});
  EXPECT_EQ(found.netdev_ifindex, if_nametoindex("lo"));
  EXPECT_EQ(entry(1, 5, &found), ENODATA) << "it is empty";
  EXPECT_EQ(entry(1, kGidCount, &found), EINVAL);
  EXPECT_EQ(entry(2, 3, &found), EINVAL);

  // Entries of a program that was built with newer headers are longer.
  struct Longer {
    ib_uverbs_gid_entry entry;
    uint64_t more;
  };
  Longer all[6];
  memset(all, 0xff, sizeof all);
  uint64_t count = 0;
  const auto table = [&](uint64_t entry_size, auto* room) {
    return Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE)
        .in(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, entry_size)
        .out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, room)
        .out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &count)
        .run(*device_.context);
  };
  ASSERT_EQ(table(sizeof(Longer), &all), 0);
  ASSERT_EQ(count, 4u);
  EXPECT_EQ(memcmp(all[3].entry.gid, gid, sizeof gid), 0);
  EXPECT_EQ(all[3].more, 0u);
  EXPECT_EQ(all[4].more, UINT64_MAX) << "nothing is written behind the last one";
  ib_uverbs_gid_entry few[3];
  EXPECT_EQ(table(sizeof few[0], &few), EINVAL) << "there is no room for all";
  EXPECT_EQ(table(0, &all), EINVAL);
}

TEST_F(IoctlTest, DeviceMemoryIsGivenOnce) {
  Dm first, second, none;
  ASSERT_EQ(allocate(100, 0, &first), 0);
  ASSERT_EQ(allocate(5000, 12, &second), 0);
  EXPECT_EQ(second.at() % 4096, 0u);
  EXPECT_GE(second.at(), first.at() + 100);
  EXPECT_EQ(allocate(kDeviceMemorySize, 0, &none), ENOMEM);
  EXPECT_EQ(allocate(kDeviceMemorySize + 1, 0, &none), EINVAL);
  EXPECT_EQ(allocate(0, 0, &none), EINVAL);
  EXPECT_EQ(allocate(1, 40, &none), ENOMEM);
  EXPECT_EQ(free(first), 0);
  EXPECT_EQ(free(first), EINVAL);
  EXPECT_EQ(free(second), 0);
  ASSERT_EQ(allocate(kDeviceMemorySize, 0, &none), 0) << "all of it is free again";
}

TEST_F(IoctlTest, RegionsOfDeviceMemoryHoldIt) {
  constexpr uint32_t kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
  Dm dm;
  uint32_t mr;
  ASSERT_EQ(allocate(100, 0, &dm), 0);
  EXPECT_EQ(region(dm, 0, 101, kAccess, &mr), EINVAL);
  EXPECT_EQ(region(dm, 101, 0, kAccess, &mr), EINVAL);
  EXPECT_EQ(region(dm, 0, 100, IBV_ACCESS_LOCAL_WRITE, &mr), EINVAL);
  EXPECT_EQ(region(dm, 0, 100, kAccess | IBV_ACCESS_MW_BIND, &mr), EINVAL);
  ASSERT_EQ(region(dm, 40, 60, kAccess, &mr), 0);
  EXPECT_EQ(free(dm), EBUSY);
  ib_uverbs_rereg_mr rereg{};
  rereg.mr_handle = mr;
  rereg.flags = IBV_REREG_MR_CHANGE_ACCESS;
  ib_uverbs_rereg_mr_resp answer;
  EXPECT_EQ(device_.send().plain(IB_USER_VERBS_CMD_REREG_MR, rereg, &answer), EINVAL);
  EXPECT_EQ(device_.send().plain(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{mr}), 0);
  EXPECT_EQ(free(dm), 0);
}

TEST_F(IoctlTest, ChildrenOfForkHaveDeviceMemoryAndQueriesOnly) {
  device_.context->orphan();
  Dm dm;
  EXPECT_EQ(allocate(100, 0, &dm), 0);
  EXPECT_EQ(free(dm), 0);
  ib_uverbs_query_device_resp answer;
  EXPECT_EQ(device_.send().plain(IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_query_device{}, &answer),
            0);
  uint32_t mr;
  EXPECT_EQ(device_.mr(pd_, 0, &mr), EIO);
  EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT).run(*device_.context), EIO);
}

TEST_F(IoctlTest, RegisterPagesDiffer) {
  std::set<uint64_t> offsets;
  uint32_t handle = 0;
  for (int i = 0; i < 3; i++) {
    uint64_t offset = 0;
    uint32_t length = 0, page = 0;
    Call call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
    call.object(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
        .in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, uint64_t{MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF})
        .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset)
        .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &length)
        .out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &page);
    ASSERT_EQ(call.run(*device_.context), 0);
    EXPECT_TRUE(offsets.insert(offset).second);
    EXPECT_LE(offset + length, kPageAllocations * device_page_size());
    handle = call.result(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
  }
  const auto destroy = [&] {
    return Call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY)
        .object(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, handle)
        .run(*device_.context);
  };
  EXPECT_EQ(destroy(), 0);
  EXPECT_EQ(destroy(), EINVAL);
}

TEST_F(IoctlTest, ImportsFindWhatIsThere) {
  uint32_t vectors = 0, pdn = 0;
  mlx5_ib_alloc_ucontext_resp driver{};
  EXPECT_EQ(Call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT)
                .out(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, &vectors)
                .out(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, &driver)
                .run(*device_.context),
            0);
  EXPECT_GT(vectors, 0u);
  EXPECT_EQ(driver.tot_bfregs, 0u) << "libmlx5 refuses to import anything else";
  EXPECT_EQ(Call(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY)
                .object(MLX5_IB_ATTR_QUERY_PD_HANDLE, pd_)
                .out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, &pdn)
                .run(*device_.context),
            0);
  EXPECT_EQ(pdn, device_.context->objects().find<PdObject>(pd_)->number);
  uint32_t mr, lkey = 0, rkey = 0;
  uint64_t length = 0;
  ASSERT_EQ(device_.mr(pd_, 0, &mr), 0);
  const auto query = [&](uint32_t handle) {
    return Call(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
        .object(UVERBS_ATTR_QUERY_MR_HANDLE, handle)
        .out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, &lkey)
        .out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, &rkey)
        .out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &length)
        .run(*device_.context);
  };
  EXPECT_EQ(query(mr), 0);
  EXPECT_EQ(lkey, *engine_.log.keys.begin());
  EXPECT_EQ(length, kRings);
  EXPECT_EQ(query(pd_), EINVAL);
}

TEST_F(IoctlTest, QueuesOfAnImportHaveTheirOwnEvents) {
  Call events(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
  ASSERT_EQ(events.object(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE).run(*device_.context), 0);
  const auto own = static_cast<int>(events.result(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE));
  const mlx5_ib_create_cq driver = device_.cq_driver();
  const auto create = [&](int event_fd) {
    uint32_t cqe = 0;
    mlx5_ib_create_cq_resp driver_answer;
    Call call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    call.object(UVERBS_ATTR_CREATE_CQ_HANDLE)
        .in(UVERBS_ATTR_CREATE_CQ_CQE, uint32_t{63})
        .in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, uint64_t{0x77})
        .in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, uint32_t{0})
        .out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &cqe)
        .object(UVERBS_ATTR_CREATE_CQ_EVENT_FD, static_cast<uint32_t>(event_fd))
        .out(UVERBS_ATTR_UHW_IN, const_cast<mlx5_ib_create_cq*>(&driver))
        .out(UVERBS_ATTR_UHW_OUT, &driver_answer);
    return call.run(*device_.context);
  };
  EXPECT_EQ(create(device_.async_fd), EPROTONOSUPPORT) << "for this one there is a command";
  EXPECT_EQ(create(own + 100), EINVAL);
  ASSERT_EQ(create(own), 0);
  (*engine_.log.cqs.begin())->config.sink->async_event(IBV_EVENT_CQ_ERR, 0x77);
  ib_uverbs_async_event_desc record{};
  ASSERT_EQ(read(own, &record, sizeof record), ssize_t(sizeof record));
  EXPECT_EQ(record.element, 0x77u);
  // The port's events go to all files.
  engine_.port_sink->async_event(IBV_EVENT_PORT_ERR, 1);
  for (const int fd : {own, device_.async_fd}) {
    ASSERT_EQ(read(fd, &record, sizeof record), ssize_t(sizeof record));
    EXPECT_EQ(record.event_type, uint32_t{IBV_EVENT_PORT_ERR});
  }
  close(own);
}

TEST_F(IoctlTest, AdviceIsCheckedLikeByTheDriver) {
  uint32_t pinned, paged;
  ASSERT_EQ(device_.mr(pd_, IBV_ACCESS_LOCAL_WRITE, &pinned), 0);
  ASSERT_EQ(device_.mr(pd_, IBV_ACCESS_ON_DEMAND, &paged), 0);
  const uint32_t other_pd = device_.pd();
  const auto at = reinterpret_cast<uint64_t>(device_.rings);
  const auto advise = [&](uint32_t mr, uint64_t address, uint32_t advice, uint32_t pd) {
    ib_uverbs_sge range{address, 4096, device_.context->objects().find<MrObject>(mr)->key};
    return Call(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR)
        .object(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, pd)
        .in(UVERBS_ATTR_ADVISE_MR_ADVICE, uint64_t{advice})
        .in(UVERBS_ATTR_ADVISE_MR_FLAGS, uint32_t{IB_UVERBS_ADVISE_MR_FLAG_FLUSH})
        .out(UVERBS_ATTR_ADVISE_MR_SGE_LIST, &range)
        .run(*device_.context);
  };
  constexpr uint32_t kRead = IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
  EXPECT_EQ(advise(paged, at, kRead, pd_), 0);
  EXPECT_EQ(advise(paged, at, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, pd_), 0);
  EXPECT_EQ(advise(paged, at, 77, pd_), EOPNOTSUPP);
  EXPECT_EQ(advise(pinned, at, kRead, pd_), ENOENT);
  EXPECT_EQ(advise(paged, at, kRead, other_pd), EPERM);
  EXPECT_EQ(advise(paged, at, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE, pd_), EPERM);
  EXPECT_EQ(advise(paged, at + kRings, kRead, pd_), EFAULT);
}

TEST_F(IoctlTest, ClockPageTurnsCompletionTimesIntoTheTimeOfDay) {
  const auto* info =
      reinterpret_cast<const mlx5_ib_clock_info*>(device_.context->pages().page(kPageClockInfo));
  timespec monotonic, real;
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  clock_gettime(CLOCK_REALTIME, &real);
  const auto ns = [](const timespec& time) {
    return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
  };
  EXPECT_EQ(info->sign % 2, 0u);
  const int64_t computed =
      static_cast<int64_t>(info->nsec) +
      (((ns(monotonic) - static_cast<int64_t>(info->cycles)) * info->mult) >> info->shift);
  EXPECT_LT(std::abs(computed - ns(real)), 1'000'000'000) << "far less than a wrong unit gives";
}

}  // namespace
}  // namespace cxemu

// Methods for memory: the device's own memory, which programs use through a mapping and through
// regions, and advice on regions with paging on demand.
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <bit>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "uverbs/ioctl.h"
#include "uverbs/memory_check.h"

namespace cxemu {
namespace {

// Writes where the memory's mapping begins, and the memory's offset in its first page.
void place_write(const DmObject& dm, const Attributes& attributes, uint16_t offset_id,
                 uint16_t page_id) {
  attributes.write(offset_id, uint64_t{dm.offset % device_page_size()});
  attributes.write(page_id, static_cast<uint16_t>(dm.offset / device_page_size()));
}

int dm_alloc(Context& context, const Attributes& attributes) {
  uint64_t length;
  uint32_t log_alignment;
  if (!attributes.read(UVERBS_ATTR_ALLOC_DM_LENGTH, &length) ||
      !attributes.read(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &log_alignment))
    return EINVAL;
  uint64_t type = MLX5_IB_UAPI_DM_TYPE_MEMIC;
  if (attributes.has(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE) &&
      !attributes.read(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, &type))
    return EINVAL;
  if (type != MLX5_IB_UAPI_DM_TYPE_MEMIC) return EOPNOTSUPP;
  if (length == 0 || length > kDeviceMemorySize) return EINVAL;
  if (log_alignment >= uint32_t{std::bit_width(kDeviceMemorySize)}) return ENOMEM;
  const size_t offset = context.pages().allocations().allocate(length, size_t{1} << log_alignment);
  if (offset == SIZE_MAX) return ENOMEM;
  auto object = std::make_unique<DmObject>(&context.pages(), offset, length);
  place_write(*object, attributes, MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET,
              MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX);
  attributes.write_new(UVERBS_ATTR_ALLOC_DM_HANDLE, context.objects().add(std::move(object)));
  return 0;
}

int dm_free(Context& context, const Attributes& attributes) {
  const auto* dm = attributes.object<DmObject>(context, UVERBS_ATTR_FREE_DM_HANDLE);
  if (dm == nullptr) return EINVAL;
  if (dm->users != 0) return EBUSY;
  context.objects().remove(attributes.handle(UVERBS_ATTR_FREE_DM_HANDLE));
  return 0;
}

int dm_query(Context& context, const Attributes& attributes) {
  const auto* dm = attributes.object<DmObject>(context, MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE);
  if (dm == nullptr) return EINVAL;
  place_write(*dm, attributes, MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET,
              MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX);
  attributes.write(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, uint64_t{dm->length});
  return 0;
}

// Such a region begins at address 0; only the mapping has other addresses.
int dm_mr_reg(Context& context, const Attributes& attributes) {
  constexpr uint32_t kAllowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
  auto* dm = attributes.object<DmObject>(context, UVERBS_ATTR_REG_DM_MR_DM_HANDLE);
  auto* pd = attributes.object<PdObject>(context, UVERBS_ATTR_REG_DM_MR_PD_HANDLE);
  uint64_t offset, length;
  uint32_t access;
  if (dm == nullptr || pd == nullptr || !attributes.read(UVERBS_ATTR_REG_DM_MR_OFFSET, &offset) ||
      !attributes.read(UVERBS_ATTR_REG_DM_MR_LENGTH, &length) ||
      !attributes.read(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, &access))
    return EINVAL;
  if ((access & IBV_ACCESS_ZERO_BASED) == 0 || (access & ~kAllowed) != 0) return EINVAL;
  if (offset > dm->length || length > dm->length - offset) return EINVAL;
  const auto start = reinterpret_cast<uint64_t>(context.pages().memory() + dm->offset + offset);
  uint32_t key = 0;
  if (const int error = context.nic().mr_register(pd->number, start, length, 0, access, &key))
    return error;
  auto mr = std::make_unique<MrObject>(pd, key, start, length, 0, access);
  mr->memory_set(dm);
  attributes.write(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, key);
  attributes.write(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, key);
  attributes.write_new(UVERBS_ATTR_REG_DM_MR_HANDLE, context.objects().add(std::move(mr)));
  return 0;
}

const MrObject* region_find(Context& context, uint32_t lkey) {
  const MrObject* found = nullptr;
  context.objects().each<MrObject>([&](const MrObject* mr) {
    if (mr->key == lkey) found = mr;
  });
  return found;
}

// Returns 0 or an errno, like the kernel's driver.
int advice_check(const MrObject* mr, const PdObject* pd, const ib_uverbs_sge& range, bool writes) {
  if (mr == nullptr || (mr->access & IBV_ACCESS_ON_DEMAND) == 0) return ENOENT;
  if (mr->pd != pd || (writes && (mr->access & IBV_ACCESS_LOCAL_WRITE) == 0)) return EPERM;
  const bool inside = range.addr >= mr->iova && range.length <= mr->length &&
                      range.addr - mr->iova <= mr->length - range.length;
  return inside ? 0 : EFAULT;
}

struct Advice {
  const PdObject* pd;
  bool writes, faults, waits;
};

int range_advise(Context& context, const Advice& advice, const ib_uverbs_sge& range) {
  const MrObject* mr = region_find(context, range.lkey);
  if (const int error = advice_check(mr, advice.pd, range, advice.writes)) return error;
  if (!advice.faults || range.length == 0) return 0;
  const uint64_t start = mr->start + (range.addr - mr->iova);
  const int error = memory_check(start, range.length, advice.writes);
  // A caller that does not wait for the pages does not learn that they are unavailable.
  return advice.waits ? error : 0;
}

int mr_advise(Context& context, const Attributes& attributes) {
  uint64_t what;
  uint32_t flags;
  const auto* pd = attributes.object<PdObject>(context, UVERBS_ATTR_ADVISE_MR_PD_HANDLE);
  if (pd == nullptr || !attributes.read(UVERBS_ATTR_ADVISE_MR_ADVICE, &what) ||
      !attributes.read(UVERBS_ATTR_ADVISE_MR_FLAGS, &flags))
    return EINVAL;
  if (flags & ~uint32_t{IB_UVERBS_ADVISE_MR_FLAG_FLUSH}) return EINVAL;
  const Advice advice{.pd = pd,
                      .writes = what == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                      .faults = what != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
                      .waits = (flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH) != 0};
  if (!advice.writes && advice.faults && what != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH)
    return EOPNOTSUPP;
  const std::span<const uint8_t> list = attributes.input(UVERBS_ATTR_ADVISE_MR_SGE_LIST);
  if (list.empty() || list.size() % sizeof(ib_uverbs_sge) != 0) return EINVAL;
  for (size_t at = 0; at < list.size(); at += sizeof(ib_uverbs_sge)) {
    ib_uverbs_sge range;
    memcpy(&range, list.data() + at, sizeof range);
    if (const int error = range_advise(context, advice, range)) return error;
  }
  return 0;
}

constexpr uint16_t kAlloc[] = {
    UVERBS_ATTR_ALLOC_DM_HANDLE,           UVERBS_ATTR_ALLOC_DM_LENGTH,
    UVERBS_ATTR_ALLOC_DM_ALIGNMENT,        MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET,
    MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE};
constexpr uint16_t kFree[] = {UVERBS_ATTR_FREE_DM_HANDLE};
constexpr uint16_t kQuery[] = {
    MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET,
    MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH};
constexpr uint16_t kRegister[] = {
    UVERBS_ATTR_REG_DM_MR_HANDLE,       UVERBS_ATTR_REG_DM_MR_OFFSET,
    UVERBS_ATTR_REG_DM_MR_LENGTH,       UVERBS_ATTR_REG_DM_MR_PD_HANDLE,
    UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, UVERBS_ATTR_REG_DM_MR_DM_HANDLE,
    UVERBS_ATTR_REG_DM_MR_RESP_LKEY,    UVERBS_ATTR_REG_DM_MR_RESP_RKEY};

constexpr uint16_t kAdvise[] = {UVERBS_ATTR_ADVISE_MR_PD_HANDLE, UVERBS_ATTR_ADVISE_MR_ADVICE,
                                UVERBS_ATTR_ADVISE_MR_FLAGS, UVERBS_ATTR_ADVISE_MR_SGE_LIST};

constexpr Method kMemoryMethods[] = {
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, kAlloc, 5, dm_alloc, kWorksInChild},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, kFree, 1, dm_free, kWorksWhenDead | kWorksInChild},
    {UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY, kQuery, 4, dm_query,
     kWorksInChild | kKernelAnswers},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, kRegister, 8, dm_mr_reg},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, kAdvise, 4, mr_advise, kKernelAnswers},
};

}  // namespace

std::span<const Method> memory_methods() {
  return kMemoryMethods;
}

}  // namespace cxemu

// Methods for the memory of the device, which programs use through a mapping and through regions.
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <bit>
#include <cerrno>

#include "uverbs/ioctl.h"

namespace cxemu {
namespace {

// Where the memory's mapping begins, and where in its first page the memory does.
void place_write(const DmObject& dm, const Attributes& attributes, uint16_t offset_id,
                 uint16_t page_id) {
  attributes.write(offset_id, uint64_t{dm.offset % kDevicePageSize});
  attributes.write(page_id, static_cast<uint16_t>(dm.offset / kDevicePageSize));
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
  if (log_alignment >= std::bit_width(kDeviceMemorySize)) return ENOMEM;
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

// Such a region begins at address 0: only the mapping has others.
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

constexpr Method kMethods[] = {
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, kAlloc, 5, dm_alloc, false, true},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, kFree, 1, dm_free, true, true},
    {UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY, kQuery, 4, dm_query, false, true},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, kRegister, 8, dm_mr_reg},
};

}  // namespace

std::span<const Method> device_memory_methods() {
  return kMethods;
}

}  // namespace cxemu

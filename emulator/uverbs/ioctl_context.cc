// Methods for shared descriptors, as used when a device is imported, and methods for register
// pages.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <cerrno>

#include "uverbs/command.h"
#include "uverbs/ioctl.h"
#include "uverbs/limits.h"

namespace cxemu {
namespace {

int query_context(Context& context, const Attributes& attributes) {
  attributes.write(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, kCompVectors);
  attributes.write(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, uint64_t{0});
  // A process that imports a device asks for its register pages itself.
  attributes.write(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, context_attributes(true));
  return 0;
}

// Every such file gets the port's events; the first one gets those of objects.
int async_event_alloc(Context& context, const Attributes& attributes) {
  int fd = -1;
  if (const int error = context.async_add(&fd)) return error;
  attributes.write_new(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, static_cast<uint64_t>(fd));
  return 0;
}

int pd_query(Context& context, const Attributes& attributes) {
  const auto* pd = attributes.object<PdObject>(context, MLX5_IB_ATTR_QUERY_PD_HANDLE);
  if (pd == nullptr) return EINVAL;
  attributes.write(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, pd->number);
  return 0;
}

int mr_query(Context& context, const Attributes& attributes) {
  const auto* mr = attributes.object<MrObject>(context, UVERBS_ATTR_QUERY_MR_HANDLE);
  if (mr == nullptr) return EINVAL;
  attributes.write(UVERBS_ATTR_QUERY_MR_RESP_LKEY, mr->key);
  attributes.write(UVERBS_ATTR_QUERY_MR_RESP_RKEY, mr->key);
  attributes.write(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, mr->length);
  attributes.write(UVERBS_ATTR_QUERY_MR_RESP_IOVA, mr->iova);
  return 0;
}

int uar_alloc(Context& context, const Attributes& attributes) {
  uint8_t type;
  if (!attributes.read(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, &type)) return EINVAL;
  if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
    return EOPNOTSUPP;
  uint32_t index = 0;
  if (!context.register_page_take(&index)) return ENOMEM;
  const uint32_t handle = context.objects().add(std::make_unique<UarObject>(&context, index));
  const uint64_t offset = uint64_t{kPageRegisters + index} * device_page_size();
  attributes.write(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset);
  attributes.write(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
                   static_cast<uint32_t>(device_page_size()));
  attributes.write(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, kPageRegisters + index);
  attributes.write_new(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, handle);
  return 0;
}

int uar_destroy(Context& context, const Attributes& attributes) {
  if (attributes.object<UarObject>(context, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE) == nullptr)
    return EINVAL;
  context.objects().remove(attributes.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE));
  return 0;
}

constexpr uint16_t kQueryContext[] = {UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
                                      UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT,
                                      MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX};
constexpr uint16_t kAsyncEvent[] = {UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE};
constexpr uint16_t kPdQuery[] = {MLX5_IB_ATTR_QUERY_PD_HANDLE, MLX5_IB_ATTR_QUERY_PD_RESP_PDN};
constexpr uint16_t kMrQuery[] = {UVERBS_ATTR_QUERY_MR_HANDLE, UVERBS_ATTR_QUERY_MR_RESP_LKEY,
                                 UVERBS_ATTR_QUERY_MR_RESP_RKEY, UVERBS_ATTR_QUERY_MR_RESP_LENGTH,
                                 UVERBS_ATTR_QUERY_MR_RESP_IOVA};
constexpr uint16_t kUarAlloc[] = {
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID};
constexpr uint16_t kUarDestroy[] = {MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE};

constexpr Method kContextMethods[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, kQueryContext, 0, query_context,
     kKernelAnswers},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, kAsyncEvent, 1, async_event_alloc,
     kKernelAnswers},
    {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, kPdQuery, 2, pd_query, kKernelAnswers},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, kMrQuery, 4, mr_query, kKernelAnswers},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, kUarAlloc, 5, uar_alloc},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, kUarDestroy, 1, uar_destroy,
     kWorksWhenDead},
};

}  // namespace

std::span<const Method> context_methods() {
  return kContextMethods;
}

}  // namespace cxemu

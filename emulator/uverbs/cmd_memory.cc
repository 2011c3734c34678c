// Protection domains, memory regions, address handles.
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>

#include "fabric/gid.h"
#include "uverbs/command.h"
#include "uverbs/memory_check.h"

namespace cxemu {
namespace {

constexpr uint32_t kOptionalAccess = IB_UVERBS_ACCESS_OPTIONAL_RANGE;
constexpr uint32_t kAccessKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_HUGETLB;
constexpr uint32_t kAccessWrites =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

int alloc_pd(Context& context, const CommandIo& io) {
  const uint32_t number = context.pd_number_next();
  ib_uverbs_alloc_pd_resp answer{};
  answer.pd_handle = context.objects().add(std::make_unique<PdObject>(number));
  answer_write(io.core_out, answer);
  answer_write(io.driver_out, mlx5_ib_alloc_pd_resp{.pdn = number});
  return 0;
}

// Destroys an object that has no other cleaning up to do.
template <typename T>
int object_remove(Context& context, uint32_t handle) {
  const T* object = context.objects().find<T>(handle);
  if (object == nullptr) return EINVAL;
  if (object->users != 0) return EBUSY;
  context.objects().remove(handle);
  return 0;
}

int dealloc_pd(Context& context, const CommandIo& io) {
  ib_uverbs_dealloc_pd request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  return object_remove<PdObject>(context, request.pd_handle);
}

int access_check(uint32_t access) {
  const uint32_t required = access & ~kOptionalAccess;
  if (required & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED))
    return EOPNOTSUPP;
  if (required & ~kAccessKnown) return EINVAL;
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
      !(access & IBV_ACCESS_LOCAL_WRITE))
    return EINVAL;
  return 0;
}

int reg_mr(Context& context, const CommandIo& io) {
  ib_uverbs_reg_mr request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  if (((request.start ^ request.hca_va) & 0xfff) != 0) return EINVAL;
  if (const int error = access_check(request.access_flags)) return error;
  auto* pd = context.objects().find<PdObject>(request.pd_handle);
  if (pd == nullptr) return EINVAL;
  if (const int error =
          memory_check(request.start, request.length, (request.access_flags & kAccessWrites) != 0))
    return error;
  ib_uverbs_reg_mr_resp answer{};
  if (const int error =
          context.nic().mr_register(pd->number, request.start, request.length, request.hca_va,
                                    request.access_flags, &answer.lkey))
    return error;
  answer.rkey = answer.lkey;
  answer.mr_handle = context.objects().add(std::make_unique<MrObject>(pd, answer.lkey));
  answer_write(io.core_out, answer);
  return 0;
}

int dereg_mr(Context& context, const CommandIo& io) {
  ib_uverbs_dereg_mr request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  const auto* mr = context.objects().find<MrObject>(request.mr_handle);
  if (mr == nullptr) return EINVAL;
  const int error = context.nic().mr_deregister(mr->key);
  if (error != 0 && !context.nic().dead()) return error;
  context.objects().remove(request.mr_handle);
  return 0;
}

int create_ah(Context& context, const CommandIo& io) {
  ib_uverbs_create_ah request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  auto* pd = context.objects().find<PdObject>(request.pd_handle);
  if (pd == nullptr || request.attr.port_num != 1 || request.attr.is_global == 0 ||
      request.attr.grh.sgid_index >= kGidCount)
    return EINVAL;
  const FabricNic* peer = nic_by_gid(context.fabric(), request.attr.grh.dgid);
  if (peer == nullptr) return EHOSTUNREACH;  // nobody answers the neighbour discovery
  mlx5_ib_create_ah_resp driver{};
  driver.response_length = sizeof driver;
  nic_mac(*peer, driver.dmac);
  ib_uverbs_create_ah_resp answer{};
  answer.ah_handle = context.objects().add(std::make_unique<AhObject>(pd));
  answer_write(io.core_out, answer);
  answer_write(io.driver_out, driver);
  return 0;
}

int destroy_ah(Context& context, const CommandIo& io) {
  ib_uverbs_destroy_ah request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  return object_remove<AhObject>(context, request.ah_handle);
}

constexpr Command kCommands[] = {
    {IB_USER_VERBS_CMD_ALLOC_PD, "alloc_pd", sizeof(ib_uverbs_alloc_pd),
     sizeof(ib_uverbs_alloc_pd_resp), 0, sizeof(mlx5_ib_alloc_pd_resp), alloc_pd},
    {IB_USER_VERBS_CMD_DEALLOC_PD, "dealloc_pd", sizeof(ib_uverbs_dealloc_pd), 0, 0, 0, dealloc_pd,
     true},
    {IB_USER_VERBS_CMD_REG_MR, "reg_mr", sizeof(ib_uverbs_reg_mr), sizeof(ib_uverbs_reg_mr_resp), 0,
     0, reg_mr},
    {IB_USER_VERBS_CMD_DEREG_MR, "dereg_mr", sizeof(ib_uverbs_dereg_mr), 0, 0, 0, dereg_mr, true},
    {IB_USER_VERBS_CMD_CREATE_AH, "create_ah", sizeof(ib_uverbs_create_ah),
     sizeof(ib_uverbs_create_ah_resp), 0, 0, create_ah},
    {IB_USER_VERBS_CMD_DESTROY_AH, "destroy_ah", sizeof(ib_uverbs_destroy_ah), 0, 0, 0, destroy_ah,
     true},
};

}  // namespace

std::span<const Command> memory_commands() {
  return kCommands;
}

}  // namespace cxemu

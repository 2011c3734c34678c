// Protection domains, memory regions and windows, address handles.
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
                                  IBV_ACCESS_HUGETLB | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND;
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

// Destroys an object that needs no other cleaning up.
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
  if (required & ~kAccessKnown) return EINVAL;
  if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
      !(access & IBV_ACCESS_LOCAL_WRITE))
    return EINVAL;
  return 0;
}

// Pages are translated one by one, so an address and its I/O address need equal offsets in their
// pages.
bool offsets_match(uint64_t start, uint64_t iova) {
  return ((start ^ iova) & 0xfff) == 0;
}

// Memory that is not pinned need not exist yet; with start 0 and the largest length a region is the
// whole address space.
int pages_check(uint64_t start, uint64_t length, uint32_t access) {
  if (access & IBV_ACCESS_ON_DEMAND) return length != 0 ? 0 : EINVAL;
  return memory_check(start, length, (access & kAccessWrites) != 0);
}

int reg_mr(Context& context, const CommandIo& io) {
  ib_uverbs_reg_mr request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  if (!offsets_match(request.start, request.hca_va)) return EINVAL;
  if (const int error = access_check(request.access_flags)) return error;
  auto* pd = context.objects().find<PdObject>(request.pd_handle);
  if (pd == nullptr) return EINVAL;
  if (const int error = pages_check(request.start, request.length, request.access_flags))
    return error;
  ib_uverbs_reg_mr_resp answer{};
  if (const int error =
          context.nic().mr_register(pd->number, request.start, request.length, request.hca_va,
                                    request.access_flags, &answer.lkey))
    return error;
  answer.rkey = answer.lkey;
  answer.mr_handle = context.objects().add(std::make_unique<MrObject>(
      pd, answer.lkey, request.start, request.length, request.hca_va, request.access_flags));
  answer_write(io.core_out, answer);
  return 0;
}

// Takes the request's values where it has them, and the region's values elsewhere.
int change_read(const ib_uverbs_rereg_mr& request, const MrObject& mr, PdObject* new_pd,
                RegionChange* change) {
  change->translation = (request.flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  change->pd = (request.flags & IBV_REREG_MR_CHANGE_PD) != 0;
  change->access = (request.flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  if (change->translation && !offsets_match(request.start, request.hca_va)) return EINVAL;
  change->new_access = change->access ? request.access_flags : mr.access;
  if (const int error = access_check(change->new_access)) return error;
  if (change->pd && new_pd == nullptr) return EINVAL;
  if (change->pd) change->new_pd = new_pd->number;
  change->start = change->translation ? request.start : mr.start;
  change->length = change->translation ? request.length : mr.length;
  change->iova = request.hca_va;
  // Pages that were pinned for reading must be pinned anew if they are to be written.
  if (!change->translation && !change->access) return 0;
  return pages_check(change->start, change->length, change->new_access);
}

int rereg_mr(Context& context, const CommandIo& io) {
  constexpr uint32_t kFlagsKnown =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  ib_uverbs_rereg_mr request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  if (request.flags == 0) return EINVAL;
  if ((request.flags & ~kFlagsKnown) != 0) return EOPNOTSUPP;
  auto* mr = context.objects().find<MrObject>(request.mr_handle);
  if (mr == nullptr || mr->memory != nullptr) return EINVAL;
  auto* pd = context.objects().find<PdObject>(request.pd_handle);
  RegionChange change;
  if (const int error = change_read(request, *mr, pd, &change)) return error;
  ib_uverbs_rereg_mr_resp answer{};
  if (const int error = context.nic().mr_reregister(mr->key, change, &answer.lkey)) return error;
  answer.rkey = answer.lkey;
  mr->key = answer.lkey;
  mr->start = change.start;
  mr->length = change.length;
  if (change.translation) mr->iova = change.iova;
  mr->access = change.new_access;
  if (change.pd) mr->pd_change(pd);
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

int alloc_mw(Context& context, const CommandIo& io) {
  ib_uverbs_alloc_mw request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  auto* pd = context.objects().find<PdObject>(request.pd_handle);
  if (pd == nullptr) return EINVAL;
  if (request.mw_type != IBV_MW_TYPE_1 && request.mw_type != IBV_MW_TYPE_2) return EINVAL;
  mlx5_ib_alloc_mw driver;
  if (!request_read(io.driver_in, &driver) || driver.comp_mask != 0 || driver.reserved1 != 0 ||
      driver.reserved2 != 0)
    return EOPNOTSUPP;
  ib_uverbs_alloc_mw_resp answer{};
  if (const int error =
          context.nic().mw_allocate(pd->number, request.mw_type == IBV_MW_TYPE_2, &answer.rkey))
    return error;
  answer.mw_handle = context.objects().add(std::make_unique<MwObject>(pd, answer.rkey));
  answer_write(io.core_out, answer);
  return 0;
}

int dealloc_mw(Context& context, const CommandIo& io) {
  ib_uverbs_dealloc_mw request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  const auto* mw = context.objects().find<MwObject>(request.mw_handle);
  if (mw == nullptr) return EINVAL;
  const int error = context.nic().mw_deallocate(mw->key);
  if (error != 0 && !context.nic().dead()) return error;
  context.objects().remove(request.mw_handle);
  return 0;
}

int create_ah(Context& context, const CommandIo& io) {
  ib_uverbs_create_ah request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  auto* pd = context.objects().find<PdObject>(request.pd_handle);
  if (pd == nullptr || request.attr.port_num != 1 || request.attr.is_global == 0 ||
      request.attr.grh.sgid_index >= kGidCount ||
      gid_is_empty(context.fabric_nic(), request.attr.grh.sgid_index))
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

constexpr Command kMemoryCommands[] = {
    {IB_USER_VERBS_CMD_ALLOC_PD, "alloc_pd", sizeof(ib_uverbs_alloc_pd),
     sizeof(ib_uverbs_alloc_pd_resp), 0, sizeof(mlx5_ib_alloc_pd_resp), alloc_pd},
    {IB_USER_VERBS_CMD_DEALLOC_PD, "dealloc_pd", sizeof(ib_uverbs_dealloc_pd), 0, 0, 0, dealloc_pd,
     kWorksWhenDead},
    {IB_USER_VERBS_CMD_REG_MR, "reg_mr", sizeof(ib_uverbs_reg_mr), sizeof(ib_uverbs_reg_mr_resp), 0,
     0, reg_mr},
    {IB_USER_VERBS_CMD_REREG_MR, "rereg_mr", sizeof(ib_uverbs_rereg_mr),
     sizeof(ib_uverbs_rereg_mr_resp), 0, 0, rereg_mr},
    {IB_USER_VERBS_CMD_ALLOC_MW, "alloc_mw", sizeof(ib_uverbs_alloc_mw),
     sizeof(ib_uverbs_alloc_mw_resp), 0, 0, alloc_mw},
    {IB_USER_VERBS_CMD_DEALLOC_MW, "dealloc_mw", sizeof(ib_uverbs_dealloc_mw), 0, 0, 0, dealloc_mw,
     kWorksWhenDead},
    {IB_USER_VERBS_CMD_DEREG_MR, "dereg_mr", sizeof(ib_uverbs_dereg_mr), 0, 0, 0, dereg_mr,
     kWorksWhenDead},
    {IB_USER_VERBS_CMD_CREATE_AH, "create_ah", sizeof(ib_uverbs_create_ah),
     sizeof(ib_uverbs_create_ah_resp), 0, 0, create_ah, kKernelAnswers},
    {IB_USER_VERBS_CMD_DESTROY_AH, "destroy_ah", sizeof(ib_uverbs_destroy_ah), 0, 0, 0, destroy_ah,
     kWorksWhenDead | kKernelAnswers},
};

}  // namespace

std::span<const Command> memory_commands() {
  return kMemoryCommands;
}

}  // namespace cxemu

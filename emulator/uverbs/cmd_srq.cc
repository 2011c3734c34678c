// Shared receive queues.
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "uverbs/command.h"
#include "uverbs/limits.h"
#include "uverbs/memory_check.h"

namespace cxemu {
namespace {

constexpr uint32_t kSegment = 16;  // a link or a data segment

// Both kernel and library derive an entry's size in this way from the number of its data segments.
uint32_t wqe_size(uint32_t max_sge) {
  return std::bit_ceil(std::max(2 * kSegment, kSegment + max_sge * kSegment));
}

SrqConfig config_make(const ib_uverbs_create_xsrq& request, const mlx5_ib_create_srq& driver,
                      SrqObject* object) {
  return {
      .buffer = reinterpret_cast<void*>(driver.buf_addr),
      .db = reinterpret_cast<volatile uint32_t*>(driver.db_addr),
      .wqe_count = std::bit_ceil(request.max_wr + 1),
      .wqe_shift = static_cast<uint32_t>(std::countr_zero(wqe_size(request.max_sge))),
      .user_handle = request.user_handle,
      .pd = object->pd->number,
      .sink = object,
      .cq = object->cq != nullptr ? object->cq->cq : nullptr,
      .uidx = driver.uidx,
      .xrcd = object->xrcd != nullptr ? object->xrcd->number : 0,
  };
}

int request_check(const ib_uverbs_create_xsrq& request, const mlx5_ib_create_srq& driver) {
  if (driver.flags != 0) return EOPNOTSUPP;  // signed entries
  if (driver.reserved0 != 0 || driver.reserved1 != 0) return EINVAL;
  if (request.max_wr >= kSrqEntriesMax) return EINVAL;
  if (request.max_sge > kSrqSgeMax) return EINVAL;
  if (driver.buf_addr % 64 != 0 || driver.db_addr % 4 != 0) return EINVAL;
  return 0;
}

int srq_create(Context& context, const ib_uverbs_create_xsrq& request, const CommandIo& io,
               ib_uverbs_create_srq_resp* answer) {
  if (request.srq_type != IBV_SRQT_BASIC && request.srq_type != IBV_SRQT_XRC) return EOPNOTSUPP;
  const bool xrc = request.srq_type == IBV_SRQT_XRC;
  mlx5_ib_create_srq driver;
  if (!request_read(io.driver_in, &driver)) return EOPNOTSUPP;
  auto* pd = context.objects().find<PdObject>(request.pd_handle);
  auto* cq = xrc ? context.objects().find<CqObject>(request.cq_handle) : nullptr;
  auto* xrcd = xrc ? context.objects().find<XrcdObject>(request.xrcd_handle) : nullptr;
  if (pd == nullptr || (xrc && (cq == nullptr || xrcd == nullptr))) return EINVAL;
  if (const int error = request_check(request, driver)) return error;

  auto object = std::make_unique<SrqObject>(pd, cq, xrcd);
  const SrqConfig config = config_make(request, driver, object.get());
  const uint64_t bytes = uint64_t{config.wqe_count} << config.wqe_shift;
  if (const int error = memory_check(driver.buf_addr, bytes, true)) return error;
  if (const int error = memory_check(driver.db_addr, sizeof(uint32_t), true)) return error;
  object->user_handle = request.user_handle;
  object->async = context.async();
  object->max_wr = config.wqe_count - 1;
  object->max_sge = request.max_sge;
  if (const int error = context.nic().srq_create(config, &object->srq)) return error;
  // The limit given at creation is not armed: the kernel driver ignores it, too.

  answer->max_wr = object->max_wr;
  answer->max_sge = object->max_sge;
  answer->srqn = context.nic().srq_number(object->srq);
  answer_write(io.driver_out, mlx5_ib_create_srq_resp{.srqn = answer->srqn, .reserved = 0});
  answer->srq_handle = context.objects().add(std::move(object));
  return 0;
}

int create_srq(Context& context, const CommandIo& io) {
  ib_uverbs_create_srq request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  ib_uverbs_create_xsrq full{};
  full.user_handle = request.user_handle;
  full.srq_type = IBV_SRQT_BASIC;
  full.pd_handle = request.pd_handle;
  full.max_wr = request.max_wr;
  full.max_sge = request.max_sge;
  full.srq_limit = request.srq_limit;
  ib_uverbs_create_srq_resp answer{};
  if (const int error = srq_create(context, full, io, &answer)) return error;
  answer_write(io.core_out, answer);
  return 0;
}

int create_xsrq(Context& context, const CommandIo& io) {
  ib_uverbs_create_xsrq request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  ib_uverbs_create_srq_resp answer{};
  if (const int error = srq_create(context, request, io, &answer)) return error;
  answer_write(io.core_out, answer);
  return 0;
}

int modify_srq(Context& context, const CommandIo& io) {
  ib_uverbs_modify_srq request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  const auto* object = context.objects().find<SrqObject>(request.srq_handle);
  if (object == nullptr) return EINVAL;
  // The real driver cannot resize, either.
  if ((request.attr_mask & ~uint32_t{IBV_SRQ_LIMIT}) != 0) return EINVAL;
  if ((request.attr_mask & IBV_SRQ_LIMIT) == 0) return 0;
  return context.nic().srq_limit_set(object->srq, request.srq_limit);
}

int query_srq(Context& context, const CommandIo& io) {
  ib_uverbs_query_srq request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  const auto* object = context.objects().find<SrqObject>(request.srq_handle);
  if (object == nullptr) return EINVAL;
  ib_uverbs_query_srq_resp answer{};
  if (const int error = context.nic().srq_limit_get(object->srq, &answer.srq_limit)) return error;
  answer.max_wr = object->max_wr;
  answer.max_sge = object->max_sge;
  answer_write(io.core_out, answer);
  return 0;
}

int destroy_srq(Context& context, const CommandIo& io) {
  ib_uverbs_destroy_srq request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  auto* object = context.objects().find<SrqObject>(request.srq_handle);
  if (object == nullptr) return EINVAL;
  if (object->users != 0) return EBUSY;
  const int error = context.nic().srq_destroy(object->srq);
  if (error != 0 && !context.nic().dead()) return error;
  ib_uverbs_destroy_srq_resp answer{};
  answer.events_reported =
      object->async_events -
      object->async->purge(sizeof(ib_uverbs_async_event_desc), object->user_handle);
  context.objects().remove(request.srq_handle);
  answer_write(io.core_out, answer);
  return 0;
}

constexpr size_t kSrqDriverIn = offsetof(mlx5_ib_create_srq, uidx);

constexpr Command kSrqCommands[] = {
    {IB_USER_VERBS_CMD_CREATE_SRQ, "create_srq", sizeof(ib_uverbs_create_srq),
     sizeof(ib_uverbs_create_srq_resp), kSrqDriverIn, sizeof(uint32_t), create_srq},
    {IB_USER_VERBS_CMD_CREATE_XSRQ, "create_xsrq", sizeof(ib_uverbs_create_xsrq),
     sizeof(ib_uverbs_create_srq_resp), kSrqDriverIn, sizeof(uint32_t), create_xsrq},
    {IB_USER_VERBS_CMD_MODIFY_SRQ, "modify_srq", sizeof(ib_uverbs_modify_srq), 0, 0, 0, modify_srq},
    {IB_USER_VERBS_CMD_QUERY_SRQ, "query_srq", sizeof(ib_uverbs_query_srq),
     sizeof(ib_uverbs_query_srq_resp), 0, 0, query_srq},
    {IB_USER_VERBS_CMD_DESTROY_SRQ, "destroy_srq", sizeof(ib_uverbs_destroy_srq),
     sizeof(ib_uverbs_destroy_srq_resp), 0, 0, destroy_srq, kWorksWhenDead},
};

}  // namespace

std::span<const Command> srq_commands() {
  return kSrqCommands;
}

}  // namespace cxemu

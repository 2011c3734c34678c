// Completion channels and completion queues.
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>
#include <cerrno>

#include "uverbs/command.h"
#include "uverbs/limits.h"
#include "uverbs/memory_check.h"

namespace cxemu {
namespace {

int create_comp_channel(Context& context, const CommandIo& io) {
  int fd = -1;
  if (const int error = context.channel_create(&fd)) return error;
  answer_write(io.core_out, ib_uverbs_create_comp_channel_resp{.fd = static_cast<uint32_t>(fd)});
  return 0;
}

// The parameters that both create commands have.
struct CqRequest {
  uint64_t user_handle;
  uint32_t cqe, comp_vector;
  int32_t comp_channel;
  bool ignore_overrun;
};

int driver_read(std::span<const uint8_t> from, mlx5_ib_create_cq* driver) {
  if (!request_read(from, driver)) return EOPNOTSUPP;
  if (driver->cqe_size != 64 && driver->cqe_size != 128) return EINVAL;
  // It does not matter which register page arms the queue: the doorbell record has all information.
  if (driver->cqe_comp_en != 0) return EOPNOTSUPP;
  if (driver->flags & ~MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) return EOPNOTSUPP;
  if (driver->buf_addr % 64 != 0 || driver->db_addr % 8 != 0) return EINVAL;
  return 0;
}

int cq_create(Context& context, const CqRequest& request, std::span<const uint8_t> driver_in,
              std::span<uint8_t> driver_out, ib_uverbs_create_cq_resp* answer) {
  mlx5_ib_create_cq driver;
  if (const int error = driver_read(driver_in, &driver)) return error;
  if (request.cqe == 0 || request.cqe > kCqeMax || request.comp_vector >= kCompVectors)
    return EINVAL;
  auto object = std::make_unique<CqObject>();
  if (request.comp_channel >= 0) {
    object->channel = context.channel_find(request.comp_channel);
    if (!object->channel) return EINVAL;
  }
  const uint32_t count = std::bit_ceil(request.cqe + 1);
  if (const int error = memory_check(driver.buf_addr, uint64_t{count} * driver.cqe_size, true))
    return error;
  if (const int error = memory_check(driver.db_addr, 8, true)) return error;

  object->cqe_size = driver.cqe_size;
  object->user_handle = request.user_handle;
  object->async = context.async();
  const CqConfig config{
      .buffer = reinterpret_cast<void*>(driver.buf_addr),
      .db = reinterpret_cast<volatile uint32_t*>(driver.db_addr),
      .cqe_count = count,
      .cqe_size = driver.cqe_size,
      .ignore_overrun = request.ignore_overrun,
      .user_handle = request.user_handle,
      .channel_fd = request.comp_channel,
      .sink = object.get(),
  };
  if (const int error = context.nic().cq_create(config, &object->cq)) return error;
  answer_write(driver_out, mlx5_ib_create_cq_resp{.cqn = context.nic().cq_number(object->cq)});
  answer->cqe = count - 1;
  answer->cq_handle = context.objects().add(std::move(object));
  if (context.observer() != nullptr) context.observer()->cq_created(request.user_handle);
  return 0;
}

int create_cq(Context& context, const CommandIo& io) {
  ib_uverbs_create_cq request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  ib_uverbs_create_cq_resp answer{};
  if (const int error = cq_create(
          context,
          {request.user_handle, request.cqe, request.comp_vector, request.comp_channel, false},
          io.driver_in, io.driver_out, &answer))
    return error;
  answer_write(io.core_out, answer);
  return 0;
}

int create_cq_ex(Context& context, const CommandIo& io) {
  ib_uverbs_ex_create_cq request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  if (request.comp_mask != 0 || request.reserved != 0) return EINVAL;
  if (request.flags &
      ~uint32_t{IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN})
    return EOPNOTSUPP;
  ib_uverbs_ex_create_cq_resp answer{};
  if (const int error =
          cq_create(context,
                    {request.user_handle, request.cqe, request.comp_vector, request.comp_channel,
                     (request.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0},
                    io.driver_in, io.driver_out, &answer.base))
    return error;
  answer.response_length = sizeof answer;
  answer_write(io.core_out, answer);
  return 0;
}

int resize_cq(Context& context, const CommandIo& io) {
  ib_uverbs_resize_cq request;
  mlx5_ib_resize_cq driver;
  if (!request_read(io.core_in, &request) || !request_read(io.driver_in, &driver))
    return EOPNOTSUPP;
  const auto* object = context.objects().find<CqObject>(request.cq_handle);
  if (object == nullptr || request.cqe == 0 || request.cqe > kCqeMax) return EINVAL;
  // The size of an entry must stay; otherwise the library would copy the old entries wrongly.
  if (driver.cqe_size != object->cqe_size || driver.buf_addr % 64 != 0) return EINVAL;
  if (driver.reserved0 != 0 || driver.reserved1 != 0) return EINVAL;
  const uint32_t count = std::bit_ceil(request.cqe + 1);
  if (const int error = memory_check(driver.buf_addr, uint64_t{count} * driver.cqe_size, true))
    return error;
  if (const int error = context.nic().cq_resize(
          object->cq, reinterpret_cast<void*>(driver.buf_addr), count, driver.cqe_size))
    return error;
  ib_uverbs_resize_cq_resp answer{};
  answer.cqe = count - 1;
  answer_write(io.core_out, answer);
  return 0;
}

int destroy_cq(Context& context, const CommandIo& io) {
  ib_uverbs_destroy_cq request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  auto* object = context.objects().find<CqObject>(request.cq_handle);
  if (object == nullptr) return EINVAL;
  if (object->users != 0) return EBUSY;
  const int error = context.nic().cq_destroy(object->cq);
  if (error != 0 && !context.nic().dead()) return error;
  ib_uverbs_destroy_cq_resp answer{};
  answer.comp_events_reported = object->completions;
  if (object->channel)
    answer.comp_events_reported -=
        object->channel->purge(sizeof(ib_uverbs_comp_event_desc), object->user_handle);
  answer.async_events_reported =
      object->async_events -
      object->async->purge(sizeof(ib_uverbs_async_event_desc), object->user_handle);
  if (context.observer() != nullptr) context.observer()->cq_destroyed(object->user_handle);
  context.objects().remove(request.cq_handle);
  answer_write(io.core_out, answer);
  return 0;
}

constexpr Command kCqCommands[] = {
    {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, "create_comp_channel",
     sizeof(ib_uverbs_create_comp_channel), sizeof(ib_uverbs_create_comp_channel_resp), 0, 0,
     create_comp_channel, kKernelAnswers},
    {IB_USER_VERBS_CMD_CREATE_CQ, "create_cq", sizeof(ib_uverbs_create_cq),
     sizeof(ib_uverbs_create_cq_resp), offsetof(mlx5_ib_create_cq, cqe_comp_en), sizeof(uint32_t),
     create_cq},
    {IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_CQ, "create_cq_ex",
     sizeof(ib_uverbs_ex_create_cq), sizeof(ib_uverbs_ex_create_cq_resp),
     offsetof(mlx5_ib_create_cq, cqe_comp_en), sizeof(uint32_t), create_cq_ex},
    {IB_USER_VERBS_CMD_RESIZE_CQ, "resize_cq", sizeof(ib_uverbs_resize_cq),
     sizeof(ib_uverbs_resize_cq_resp), sizeof(mlx5_ib_resize_cq), 0, resize_cq},
    {IB_USER_VERBS_CMD_DESTROY_CQ, "destroy_cq", sizeof(ib_uverbs_destroy_cq),
     sizeof(ib_uverbs_destroy_cq_resp), 0, 0, destroy_cq, kWorksWhenDead},
};

}  // namespace

std::span<const Command> cq_commands() {
  return kCqCommands;
}

}  // namespace cxemu

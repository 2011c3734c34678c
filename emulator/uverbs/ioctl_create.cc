// Queues that an imported device creates: their events go to a separate file, which only these
// methods can name. All other callers are sent to the commands, which do the work here, too.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

#include <cerrno>

#include "uverbs/command.h"
#include "uverbs/ioctl.h"

namespace cxemu {
namespace {

// Runs an extended command for objects whose events go to the file that `event_id` names.
template <typename Request, typename Answer>
int command_run_for(Context& context, const Attributes& attributes, uint16_t event_id,
                    uint32_t number, const Request& request, Answer* answer) {
  const Context::AsyncChoice choice(context, static_cast<int>(attributes.handle(event_id)));
  if (choice.is_first()) return EPROTONOSUPPORT;
  if (!choice.is_known()) return EINVAL;
  const Command* command = command_find(IB_USER_VERBS_CMD_FLAG_EXTENDED | number);
  const CommandIo io{
      .core_in = {reinterpret_cast<const uint8_t*>(&request), sizeof request},
      .driver_in = attributes.input(UVERBS_ATTR_UHW_IN),
      .core_out = {reinterpret_cast<uint8_t*>(answer), sizeof *answer},
      .driver_out = attributes.output(UVERBS_ATTR_UHW_OUT),
  };
  if (io.driver_in.size() < command->driver_in) return EINVAL;
  if (io.driver_out.size() < command->driver_out) return ENOSPC;
  return command->run(context, io);
}

int cq_create(Context& context, const Attributes& attributes) {
  ib_uverbs_ex_create_cq request{};
  if (!attributes.read(UVERBS_ATTR_CREATE_CQ_CQE, &request.cqe) ||
      !attributes.read(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, &request.user_handle) ||
      !attributes.read(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &request.comp_vector))
    return EINVAL;
  request.comp_channel =
      attributes.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)
          ? static_cast<int>(attributes.handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL))
          : -1;
  if (attributes.has(UVERBS_ATTR_CREATE_CQ_FLAGS) &&
      !attributes.read(UVERBS_ATTR_CREATE_CQ_FLAGS, &request.flags))
    return EINVAL;
  ib_uverbs_ex_create_cq_resp answer{};
  if (const int error = command_run_for(context, attributes, UVERBS_ATTR_CREATE_CQ_EVENT_FD,
                                        IB_USER_VERBS_EX_CMD_CREATE_CQ, request, &answer))
    return error;
  attributes.write(UVERBS_ATTR_CREATE_CQ_RESP_CQE, answer.base.cqe);
  attributes.write_new(UVERBS_ATTR_CREATE_CQ_HANDLE, answer.base.cq_handle);
  return 0;
}

// Reads flags that are an ordinary member in the commands.
int qp_flags_read(const Attributes& attributes, ib_uverbs_ex_create_qp* request) {
  uint32_t flags = 0;
  if (attributes.has(UVERBS_ATTR_CREATE_QP_FLAGS) &&
      !attributes.read(UVERBS_ATTR_CREATE_QP_FLAGS, &flags))
    return EINVAL;
  request->sq_sig_all = (flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0;
  request->create_flags = flags & ~uint32_t{IB_UVERBS_QP_CREATE_SQ_SIG_ALL};
  return 0;
}

int qp_create(Context& context, const Attributes& attributes) {
  uint64_t type;
  ib_uverbs_qp_cap cap;
  const std::span<const uint8_t> cap_in = attributes.input(UVERBS_ATTR_CREATE_QP_CAP);
  ib_uverbs_ex_create_qp request{};
  if (!attributes.read(UVERBS_ATTR_CREATE_QP_TYPE, &type) || cap_in.size() != sizeof cap ||
      !attributes.read(UVERBS_ATTR_CREATE_QP_USER_HANDLE, &request.user_handle))
    return EINVAL;
  if (const int error = qp_flags_read(attributes, &request)) return error;
  memcpy(&cap, cap_in.data(), sizeof cap);
  const auto handle = [&](uint16_t id) { return attributes.has(id) ? attributes.handle(id) : 0; };
  const bool has_xrcd = attributes.has(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE);
  request.pd_handle =
      handle(has_xrcd ? UVERBS_ATTR_CREATE_QP_XRCD_HANDLE : UVERBS_ATTR_CREATE_QP_PD_HANDLE);
  request.send_cq_handle = handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
  request.recv_cq_handle = handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
  request.srq_handle = handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
  request.is_srq = attributes.has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
  request.max_send_wr = cap.max_send_wr;
  request.max_recv_wr = cap.max_recv_wr;
  request.max_send_sge = cap.max_send_sge;
  request.max_recv_sge = cap.max_recv_sge;
  request.max_inline_data = cap.max_inline_data;
  request.qp_type = static_cast<uint8_t>(type);
  ib_uverbs_ex_create_qp_resp answer{};
  if (const int error = command_run_for(context, attributes, UVERBS_ATTR_CREATE_QP_EVENT_FD,
                                        IB_USER_VERBS_EX_CMD_CREATE_QP, request, &answer))
    return error;
  const ib_uverbs_create_qp_resp& base = answer.base;
  attributes.write(UVERBS_ATTR_CREATE_QP_RESP_CAP,
                   ib_uverbs_qp_cap{base.max_send_wr, base.max_recv_wr, base.max_send_sge,
                                    base.max_recv_sge, base.max_inline_data});
  attributes.write(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, base.qpn);
  attributes.write_new(UVERBS_ATTR_CREATE_QP_HANDLE, base.qp_handle);
  return 0;
}

constexpr uint16_t kCqCreate[] = {UVERBS_ATTR_CREATE_CQ_HANDLE,
                                  UVERBS_ATTR_CREATE_CQ_CQE,
                                  UVERBS_ATTR_CREATE_CQ_USER_HANDLE,
                                  UVERBS_ATTR_CREATE_CQ_COMP_VECTOR,
                                  UVERBS_ATTR_CREATE_CQ_RESP_CQE,
                                  UVERBS_ATTR_CREATE_CQ_EVENT_FD,
                                  UVERBS_ATTR_CREATE_CQ_FLAGS,
                                  UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL,
                                  UVERBS_ATTR_UHW_IN,
                                  UVERBS_ATTR_UHW_OUT};
constexpr uint16_t kQpCreate[] = {UVERBS_ATTR_CREATE_QP_HANDLE,
                                  UVERBS_ATTR_CREATE_QP_USER_HANDLE,
                                  UVERBS_ATTR_CREATE_QP_CAP,
                                  UVERBS_ATTR_CREATE_QP_TYPE,
                                  UVERBS_ATTR_CREATE_QP_EVENT_FD,
                                  UVERBS_ATTR_CREATE_QP_RESP_CAP,
                                  UVERBS_ATTR_CREATE_QP_RESP_QP_NUM,
                                  UVERBS_ATTR_CREATE_QP_FLAGS,
                                  UVERBS_ATTR_CREATE_QP_PD_HANDLE,
                                  UVERBS_ATTR_CREATE_QP_XRCD_HANDLE,
                                  UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE,
                                  UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE,
                                  UVERBS_ATTR_CREATE_QP_SRQ_HANDLE,
                                  UVERBS_ATTR_UHW_IN,
                                  UVERBS_ATTR_UHW_OUT};

constexpr Method kCreateMethods[] = {
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, kCqCreate, 6, cq_create},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, kQpCreate, 7, qp_create},
};

}  // namespace

std::span<const Method> create_methods() {
  return kCreateMethods;
}

}  // namespace cxemu

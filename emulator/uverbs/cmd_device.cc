// get_context, query_device, query_port: what the device says about itself. It is a ConnectX-6 Dx
// with one RoCE port. It does not offer what the emulator cannot do.
#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>

#include "fabric/gid.h"
#include "uverbs/command.h"
#include "uverbs/limits.h"

namespace cxemu {
namespace {

// The IBTA values for "link up" and "disabled" of the port's physical state.
constexpr uint8_t kPhysicalLinkUp = 5;
constexpr uint8_t kPhysicalDisabled = 3;

int get_context(Context& context, const CommandIo& io) {
  mlx5_ib_alloc_ucontext_req_v2 request;
  if (!request_read(io.driver_in, &request)) return EOPNOTSUPP;
  if (request.total_num_bfregs == 0 || request.num_low_latency_bfregs > request.total_num_bfregs)
    return EINVAL;
  if (request.flags & MLX5_IB_ALLOC_UCTX_DEVX) return EOPNOTSUPP;
  int async_fd = -1;
  if (const int error = context.start(&async_fd)) return error;

  ib_uverbs_get_context_resp answer{};
  answer.async_fd = static_cast<uint32_t>(async_fd);
  answer.num_comp_vectors = kCompVectors;
  answer_write(io.core_out, answer);

  const bool own_registers = (request.lib_caps & MLX5_LIB_CAP_DYN_UAR) != 0;
  answer_write(io.driver_out, context_attributes(own_registers));
  return 0;
}

ib_uverbs_query_device_resp device_attributes(const FabricNic& nic) {
  ib_uverbs_query_device_resp answer{};
  answer.fw_ver = 22ull << 32 | 41ull << 16 | 1000;
  answer.node_guid = htobe64(nic.guid);
  answer.sys_image_guid = answer.node_guid;
  answer.max_mr_size = UINT64_MAX;
  answer.page_size_cap = ~uint64_t{0xfff};
  answer.vendor_id = 0x02c9;
  answer.vendor_part_id = kPciDeviceId;
  answer.max_qp = kObjectsMax;
  answer.max_qp_wr = kQueueEntriesMax;
  answer.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR |
                            IBV_DEVICE_CHANGE_PHY_PORT | IBV_DEVICE_PORT_ACTIVE_EVENT |
                            IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                            IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC;
  answer.max_sge = kSgeMax;
  answer.max_sge_rd = kSgeMax;
  answer.max_cq = kObjectsMax;
  answer.max_cqe = kCqeMax;
  answer.max_mr = kObjectsMax;
  answer.max_mw = kObjectsMax;
  answer.max_pd = kObjectsMax;
  answer.max_qp_rd_atom = kReadAtomicMax;
  answer.max_res_rd_atom = kReadAtomicMax * kObjectsMax;
  answer.max_qp_init_rd_atom = kReadAtomicMax;
  answer.atomic_cap = IBV_ATOMIC_HCA;
  answer.max_ah = kObjectsMax;
  answer.max_srq = kObjectsMax;
  answer.max_srq_wr = kSrqEntriesMax - 1;
  answer.max_srq_sge = kSrqSgeMax;
  answer.max_pkeys = 1;
  answer.local_ca_ack_delay = 16;
  answer.phys_port_cnt = 1;
  return answer;
}

int query_device(Context& context, const CommandIo& io) {
  answer_write(io.core_out, device_attributes(context.fabric_nic()));
  return 0;
}

int query_device_ex(Context& context, const CommandIo& io) {
  ib_uverbs_ex_query_device request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  if (request.comp_mask != 0 || request.reserved != 0) return EINVAL;
  ib_uverbs_ex_query_device_resp answer{};
  answer.base = device_attributes(context.fabric_nic());
  answer.response_length = static_cast<uint32_t>(std::min(io.core_out.size(), sizeof answer));
  answer.timestamp_mask = UINT64_MAX;
  answer.hca_core_clock = 1000000;  // kHz: completions carry nanoseconds
  answer.max_dm_size = kDeviceMemorySize;
  constexpr uint32_t kOdpRequests =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
  answer.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  answer.odp_caps.per_transport_caps.rc_odp_caps =
      kOdpRequests | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  answer.odp_caps.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND;
  answer.xrc_odp_caps = kOdpRequests | IBV_ODP_SUPPORT_SRQ_RECV;
  answer_write(io.core_out, answer);
  mlx5_ib_query_device_resp driver{};
  driver.response_length = static_cast<uint32_t>(std::min(io.driver_out.size(), sizeof driver));
  answer_write(io.driver_out, driver);
  return 0;
}

int query_port(Context& context, const CommandIo& io) {
  ib_uverbs_query_port request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  if (request.port_num != 1) return EINVAL;
  const bool up = (faults_now(context.fabric_nic()) & kLinkDown) == 0;
  ib_uverbs_query_port_resp answer{};
  answer.port_cap_flags = IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS;
  answer.max_msg_sz = 1u << 30;
  answer.qkey_viol_cntr =
      static_cast<uint32_t>(context.fabric_nic().qkey_violations.load(std::memory_order_relaxed));
  answer.gid_tbl_len = kGidCount;
  answer.pkey_tbl_len = 1;
  answer.state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  answer.max_mtu = IBV_MTU_4096;
  answer.active_mtu = IBV_MTU_4096;
  answer.active_width = 2;   // 4X
  answer.active_speed = 32;  // EDR: with 4X, 100 Gb/s
  answer.phys_state = up ? kPhysicalLinkUp : kPhysicalDisabled;
  answer.link_layer = IBV_LINK_LAYER_ETHERNET;
  answer_write(io.core_out, answer);
  return 0;
}

constexpr Command kDeviceCommands[] = {
    {IB_USER_VERBS_CMD_GET_CONTEXT, "get_context", sizeof(ib_uverbs_get_context),
     sizeof(ib_uverbs_get_context_resp), sizeof(mlx5_ib_alloc_ucontext_req),
     offsetof(mlx5_ib_alloc_ucontext_resp, response_length), get_context},
    {IB_USER_VERBS_CMD_QUERY_DEVICE, "query_device", sizeof(ib_uverbs_query_device),
     sizeof(ib_uverbs_query_device_resp), 0, 0, query_device, kWorksInChild | kKernelAnswers},
    {IB_USER_VERBS_CMD_QUERY_PORT, "query_port", sizeof(ib_uverbs_query_port),
     sizeof(ib_uverbs_query_port_resp), 0, 0, query_port, kWorksInChild},
    {IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE, "query_device_ex",
     sizeof(ib_uverbs_ex_query_device), offsetof(ib_uverbs_ex_query_device_resp, odp_caps), 0, 0,
     query_device_ex, kWorksInChild},
};

}  // namespace

mlx5_ib_alloc_ucontext_resp context_attributes(bool own_registers) {
  mlx5_ib_alloc_ucontext_resp driver{};
  driver.qp_tab_size = 1u << 18;
  driver.bf_reg_size = 512;
  // Two registers make one page, which is at offset 0.
  driver.tot_bfregs = own_registers ? 0 : 2;
  driver.cache_line_size = 64;
  driver.max_sq_desc_sz = kSendDescriptorMax;
  driver.max_rq_desc_sz = kRecvDescriptorMax;
  driver.max_send_wqebb = kQueueEntriesMax;
  driver.max_recv_wr = kQueueEntriesMax;
  driver.max_srq_recv_wr = kSrqEntriesMax;
  driver.num_ports = 1;
  driver.response_length = sizeof driver;
  driver.cqe_version = 1;
  driver.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
  driver.eth_min_inline = MLX5_USER_INLINE_MODE_NONE;
  driver.clock_info_versions = 1u << MLX5_IB_CLOCK_INFO_V1;
  driver.log_uar_size = 12;
  driver.num_uars_per_page = 1;
  return driver;
}

std::span<const Command> device_commands() {
  return kDeviceCommands;
}

}  // namespace cxemu

// Direct verbs that make objects out of virtual ones, or look into virtual ones.
#include <endian.h>

#include <cstring>

#include "direct.h"
#include "newer.h"

namespace shift::mlx5 {
namespace {

// Replaces all virtual objects that `obj` asks about by the NIC's own. Returns false if that is
// refused.
bool find_real(mlx5dv_obj& to, const mlx5dv_obj& obj, uint64_t types) noexcept {
  static std::atomic<bool> told{false};
  constexpr char kName[] = "mlx5dv_init_obj";
  // Copies only what was asked for: programs built long ago pass a shorter struct.
  if (types & MLX5DV_OBJ_QP) to.qp = obj.qp;
  if (types & MLX5DV_OBJ_CQ) to.cq = obj.cq;
  if (types & MLX5DV_OBJ_SRQ) to.srq = obj.srq;
  if (types & MLX5DV_OBJ_RWQ) to.rwq = obj.rwq;
  if (types & MLX5DV_OBJ_DM) to.dm = obj.dm;
  if (types & MLX5DV_OBJ_AH) to.ah = obj.ah;
  if (types & MLX5DV_OBJ_PD) to.pd = obj.pd;
  if (is_virtual(to.qp.in) && !may_pass(to.qp.in, kName, told)) return false;
  // The stock library gives the queue away: the caller is to poll it from then on.
  if (is_virtual(to.cq.in) && !may_pass(to.cq.in, kName, told)) return false;
  if (is_virtual(to.srq.in) && !may_pass(to.srq.in, kName, told)) return false;
  to.qp.in = real(to.qp.in);
  to.cq.in = real(to.cq.in);
  to.srq.in = real(to.srq.in);
  to.pd.in = real(to.pd.in);
  return true;
}

// `version` tells the two versions of the symbol apart.
template <int version>
struct InitObj {
  static inline int (*stock)(mlx5dv_obj*, uint64_t) = nullptr;
  static int call(mlx5dv_obj* obj, uint64_t types) {
    mlx5dv_obj own{};
    return find_real(own, *obj, types) ? stock(&own, types) : EOPNOTSUPP;
  }
};

struct CreateCq {
  static inline ibv_cq_ex* (*stock)(ibv_context*, ibv_cq_init_attr_ex*,
                                    mlx5dv_cq_init_attr*) = nullptr;
  // Beyond the plain verb, a program can choose the form of the entries in the NIC's memory. Only
  // the provider sees them: mlx5dv_init_obj is refused, or the owner copes with either form.
  static ibv_cq_ex* call(ibv_context* context, ibv_cq_init_attr_ex* init,
                         mlx5dv_cq_init_attr* more) {
    if (!is_virtual(context)) return stock(context, init, more);
    constexpr uint64_t kMask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE |
                               MLX5DV_CQ_INIT_ATTR_MASK_FLAGS | MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    const uint64_t mask = more != nullptr ? more->comp_mask : 0;
    const bool is_good_size = !(mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE) || more->cqe_size == 64 ||
                              more->cqe_size == 128;
    if ((mask & ~kMask) != 0 || !is_good_size) {
      errno = EINVAL;
      return nullptr;
    }
    return ibv_create_cq_ex(context, init);
  }
};

struct CreateQp {
  static inline ibv_qp* (*stock)(ibv_context*, ibv_qp_init_attr_ex*,
                                 mlx5dv_qp_init_attr*) = nullptr;
  static ibv_qp* make(ibv_context* own, ibv_qp_init_attr_ex* init, void* more) {
    return stock(own, init, static_cast<mlx5dv_qp_init_attr*>(more));
  }
  // Whether a plain queue pair would do: scattering small data to completions is only a permission.
  static bool is_plain(const mlx5dv_qp_init_attr* more) {
    if (more == nullptr || more->comp_mask == 0) return true;
    return more->comp_mask == MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS &&
           (more->create_flags & ~MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE) == 0;
  }
  static ibv_qp* call(ibv_context* context, ibv_qp_init_attr_ex* init, mlx5dv_qp_init_attr* more) {
    if (!is_virtual(context)) return stock(context, init, more);
    // The layer protects reliable connections. All other queue pairs are the NIC's own, as with
    // plain verbs.
    if (init->qp_type == IBV_QPT_RC) {
      const bool unprotected = mode() == DirectVerbs::kUnprotected;
      if (!unprotected && is_plain(more)) return ibv_create_qp_ex(context, init);
      static std::atomic<bool> told{false};
      if (!may_pass(context, "mlx5dv_create_qp", told)) return refusal<ibv_qp*>();
    }
    return virtual_objects()->make_qp(context, init, make, more);
  }
};

struct CreateWq {
  static inline ibv_wq* (*stock)(ibv_context*, ibv_wq_init_attr*, mlx5dv_wq_init_attr*) = nullptr;
  static ibv_wq* call(ibv_context* context, ibv_wq_init_attr* init, mlx5dv_wq_init_attr* more) {
    if (!is_virtual(context)) return stock(context, init, more);
    ibv_wq_init_attr own = *init;
    own.pd = real(init->pd);
    own.cq = real(init->cq);
    ibv_wq* wq = stock(real(context), &own, more);
    init->max_wr = own.max_wr;
    init->max_sge = own.max_sge;
    return wq;
  }
};

struct CreateMkey {
  static inline mlx5dv_mkey* (*stock)(mlx5dv_mkey_init_attr*) = nullptr;
  static mlx5dv_mkey* call(mlx5dv_mkey_init_attr* init) {
    mlx5dv_mkey_init_attr own = *init;
    own.pd = real(init->pd);
    mlx5dv_mkey* key = stock(&own);
    own.pd = init->pd;
    *init = own;
    return key;
  }
};

struct DekCreate {
  static inline mlx5dv_dek* (*stock)(ibv_context*, mlx5dv_dek_init_attr*) = nullptr;
  static mlx5dv_dek* call(ibv_context* context, mlx5dv_dek_init_attr* init) {
    mlx5dv_dek_init_attr own = *init;
    own.pd = real(init->pd);
    return stock(real(context), &own);
  }
};

// A region of one NIC could not follow the traffic to another NIC; one made by the plain verb can.
struct RegDmabufMr {
  static inline ibv_mr* (*stock)(ibv_pd*, uint64_t, size_t, uint64_t, int, int, int) = nullptr;
  static ibv_mr* call(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access,
                      int mlx5_access) {
    if (!is_virtual(pd)) return stock(pd, offset, length, iova, fd, access, mlx5_access);
    if (mlx5_access == 0) return ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
    static std::atomic<bool> told{false};
    tell_refused("mlx5dv_reg_dmabuf_mr with data direct", told);
    return refusal<ibv_mr*>();
  }
};

// The stock function computes an address. A protected queue pair does not offer these further
// requests.
struct QpEx {
  static inline mlx5dv_qp_ex* (*stock)(ibv_qp_ex*) = nullptr;
  static mlx5dv_qp_ex* call(ibv_qp_ex* qp) {
    if (qp == nullptr || !is_virtual(&qp->qp_base)) return stock(qp);
    static std::atomic<bool> told{false};
    tell_refused("mlx5dv_qp_ex_from_ibv_qp_ex", told);
    return refusal<mlx5dv_qp_ex*>();
  }
};

// Steering sends datagrams and raw packets to queue pairs; the layer protects neither kind.
bool names_virtual_qp(const void* actions, size_t count, size_t size) noexcept {
  for (size_t i = 0; i < count; i++) {
    mlx5dv_flow_action_attr action;
    std::memcpy(&action, static_cast<const char*>(actions) + i * size, sizeof action);
    if (action.type == MLX5DV_FLOW_ACTION_DEST_IBV_QP && is_virtual(action.qp)) return true;
  }
  return false;
}

ibv_flow* refuse_flow() noexcept {
  static std::atomic<bool> told{false};
  tell_refused("mlx5dv_create_flow", told);
  return refusal<ibv_flow*>();
}

struct CreateFlow {
  static inline ibv_flow* (*stock)(mlx5dv_flow_matcher*, mlx5dv_flow_match_parameters*, size_t,
                                   mlx5dv_flow_action_attr*) = nullptr;
  static ibv_flow* call(mlx5dv_flow_matcher* matcher, mlx5dv_flow_match_parameters* value,
                        size_t count, mlx5dv_flow_action_attr* actions) {
    if (names_virtual_qp(actions, count, sizeof *actions)) return refuse_flow();
    return stock(matcher, value, count, actions);
  }
};

struct CreateFlowSized {
  static inline ibv_flow* (*stock)(mlx5dv_flow_matcher*, mlx5dv_flow_match_parameters*, size_t,
                                   mlx5dv_flow_action_attr*, size_t) = nullptr;
  static ibv_flow* call(mlx5dv_flow_matcher* matcher, mlx5dv_flow_match_parameters* value,
                        size_t count, mlx5dv_flow_action_attr* actions, size_t size) {
    if (size >= sizeof *actions && names_virtual_qp(actions, count, size)) return refuse_flow();
    return stock(matcher, value, count, actions, size);
  }
};

// Firmware commands make objects that belong to the NIC. The one exception is a reliable
// connection, which the layer should have protected.
struct DevxObjCreate {
  static inline mlx5dv_devx_obj* (*stock)(ibv_context*, const void*, size_t, void*,
                                          size_t) = nullptr;
  static bool makes_connection(const void* in, size_t size) {
    constexpr uint16_t kCreateQp = 0x500;
    constexpr size_t kService = 25;  // second byte of the queue pair's context
    if (size <= kService) return false;
    uint16_t command;
    std::memcpy(&command, in, sizeof command);
    return be16toh(command) == kCreateQp && static_cast<const uint8_t*>(in)[kService] == 0;
  }
  static mlx5dv_devx_obj* call(ibv_context* context, const void* in, size_t in_size, void* out,
                               size_t out_size) {
    if (is_virtual(context) && makes_connection(in, in_size)) {
      static std::atomic<bool> told{false};
      if (!may_pass(context, "mlx5dv_devx_obj_create of a queue pair", told)) {
        return refusal<mlx5dv_devx_obj*>();
      }
    }
    return stock(real(context), in, in_size, out, out_size);
  }
};

}  // namespace

SHIFT_LEAD(mlx5dv_init_obj, InitObj<2>)
SHIFT_LEAD(mlx5dv_init_obj_MLX5_1_0, InitObj<0>)
SHIFT_LEAD(mlx5dv_create_cq, CreateCq)
SHIFT_LEAD(mlx5dv_create_qp, CreateQp)
SHIFT_LEAD(mlx5dv_create_wq, CreateWq)
SHIFT_LEAD(mlx5dv_create_mkey, CreateMkey)
SHIFT_LEAD(mlx5dv_dek_create, DekCreate)
SHIFT_LEAD(mlx5dv_reg_dmabuf_mr, RegDmabufMr)
SHIFT_LEAD(mlx5dv_qp_ex_from_ibv_qp_ex, QpEx)
SHIFT_LEAD(mlx5dv_create_flow, CreateFlow)
SHIFT_LEAD(__mlx5dv_create_flow, CreateFlowSized)
SHIFT_LEAD(mlx5dv_devx_obj_create, DevxObjCreate)

SHIFT_ASKS(mlx5dv_query_qp_lag_port)
SHIFT_ASKS(mlx5dv_devx_qp_query)
SHIFT_ASKS(mlx5dv_devx_cq_query)
SHIFT_ASKS(mlx5dv_devx_srq_query)

// One NIC keeps what these functions set, and it would be lost on the way to another NIC.
SHIFT_BYPASSES(mlx5dv_modify_qp_lag_port)
SHIFT_BYPASSES(mlx5dv_modify_qp_udp_sport)
SHIFT_BYPASSES(mlx5dv_modify_qp_sched_elem)
SHIFT_BYPASSES(mlx5dv_dci_stream_id_reset)
SHIFT_BYPASSES(mlx5dv_dr_action_create_dest_ibv_qp)
SHIFT_BYPASSES(mlx5dv_devx_qp_modify)
SHIFT_BYPASSES(mlx5dv_devx_cq_modify)
SHIFT_BYPASSES(mlx5dv_devx_srq_modify)

}  // namespace shift::mlx5

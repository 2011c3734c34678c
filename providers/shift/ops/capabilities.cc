#include "ops/capabilities.h"

#include <algorithm>

namespace shift::ops {
namespace {

template <typename Number>
void at_most(Number& value, Number limit) {
  value = std::min(value, limit);
}

// Flags of what the default NIC alone serves; the other members need not have them.
constexpr unsigned kStockFlags = IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW |
                                 IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B |
                                 IBV_DEVICE_RAW_IP_CSUM | IBV_DEVICE_UD_IP_CSUM |
                                 IBV_DEVICE_UD_AV_PORT_ENFORCE | IBV_DEVICE_MANAGED_FLOW_STEERING |
                                 IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR;
constexpr uint64_t kStockFlagsEx = IBV_DEVICE_RAW_SCATTER_FCS | IBV_DEVICE_PCI_WRITE_END_PADDING;

// Flags of what the layer refuses, whatever the NICs can do.
constexpr unsigned kRefusedFlags = IBV_DEVICE_SRQ_RESIZE;

}  // namespace

void limit_to(ibv_device_attr& attr, const ibv_device_attr& other) {
  at_most(attr.max_mr_size, other.max_mr_size);
  attr.page_size_cap &= other.page_size_cap;
  at_most(attr.max_qp, other.max_qp);
  at_most(attr.max_qp_wr, other.max_qp_wr);
  attr.device_cap_flags &= (other.device_cap_flags | kStockFlags) & ~kRefusedFlags;
  at_most(attr.max_sge, other.max_sge);
  at_most(attr.max_sge_rd, other.max_sge_rd);
  at_most(attr.max_cq, other.max_cq);
  at_most(attr.max_cqe, other.max_cqe);
  at_most(attr.max_mr, other.max_mr);
  at_most(attr.max_pd, other.max_pd);
  at_most(attr.max_qp_rd_atom, other.max_qp_rd_atom);
  at_most(attr.max_res_rd_atom, other.max_res_rd_atom);
  at_most(attr.max_qp_init_rd_atom, other.max_qp_init_rd_atom);
  at_most(attr.atomic_cap, other.atomic_cap);
  at_most(attr.max_srq, other.max_srq);
  at_most(attr.max_srq_wr, other.max_srq_wr);
  at_most(attr.max_srq_sge, other.max_srq_sge);
  attr.local_ca_ack_delay = std::max(attr.local_ca_ack_delay, other.local_ca_ack_delay);
}

void limit_to(ibv_device_attr_ex& attr, const ibv_device_attr_ex& other) {
  limit_to(attr.orig_attr, other.orig_attr);
  attr.odp_caps.general_caps &= other.odp_caps.general_caps;
  attr.odp_caps.per_transport_caps.rc_odp_caps &= other.odp_caps.per_transport_caps.rc_odp_caps;
  attr.device_cap_flags_ex &=
      (other.device_cap_flags_ex | kStockFlagsEx | kStockFlags) & ~uint64_t{kRefusedFlags};
  at_most(attr.cq_mod_caps.max_cq_count, other.cq_mod_caps.max_cq_count);
  at_most(attr.cq_mod_caps.max_cq_period, other.cq_mod_caps.max_cq_period);
  attr.pci_atomic_caps.fetch_add &= other.pci_atomic_caps.fetch_add;
  attr.pci_atomic_caps.swap &= other.pci_atomic_caps.swap;
  attr.pci_atomic_caps.compare_swap &= other.pci_atomic_caps.compare_swap;
}

void limit_to(ibv_port_attr& attr, const ibv_port_attr& other) {
  at_most(attr.max_msg_sz, other.max_msg_sz);
  at_most(attr.max_mtu, other.max_mtu);
  at_most(attr.active_mtu, other.active_mtu);
}

}  // namespace shift::ops

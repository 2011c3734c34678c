// The stock verbs library beneath the provider, as a table that the carrier fills in (ops/glue.h).
#pragma once

#include <infiniband/verbs.h>

#include "util/work_rings.h"

namespace shift {

// Exported functions of the stock library, with the version that each is bound at. Inline verbs
// need no entry: they go through the pointers in the real context. The provider must not call an
// exported ibv_* function by its name: inside the front, that is the front's own function.
// query_port is the old entry point, which fills a short struct. Real ports are queried through
// verbs_get_ctx(context)->query_port, and through query_port only when that is missing.
#define SHIFT_STOCK_FUNCTIONS(F)            \
  F(get_device_list, "IBVERBS_1.1")         \
  F(free_device_list, "IBVERBS_1.1")        \
  F(get_device_name, "IBVERBS_1.1")         \
  F(get_device_guid, "IBVERBS_1.1")         \
  F(get_device_index, "IBVERBS_1.9")        \
  F(open_device, "IBVERBS_1.1")             \
  F(close_device, "IBVERBS_1.1")            \
  F(import_device, "IBVERBS_1.10")          \
  F(query_device, "IBVERBS_1.1")            \
  F(query_port, "IBVERBS_1.1")              \
  F(query_gid, "IBVERBS_1.1")               \
  F(query_pkey, "IBVERBS_1.1")              \
  F(get_pkey_index, "IBVERBS_1.5")          \
  F(alloc_pd, "IBVERBS_1.1")                \
  F(dealloc_pd, "IBVERBS_1.1")              \
  F(import_pd, "IBVERBS_1.10")              \
  F(unimport_pd, "IBVERBS_1.10")            \
  F(reg_mr, "IBVERBS_1.1")                  \
  F(reg_mr_iova, "IBVERBS_1.7")             \
  F(reg_mr_iova2, "IBVERBS_1.8")            \
  F(reg_dmabuf_mr, "IBVERBS_1.12")          \
  F(rereg_mr, "IBVERBS_1.1")                \
  F(dereg_mr, "IBVERBS_1.1")                \
  F(import_mr, "IBVERBS_1.10")              \
  F(unimport_mr, "IBVERBS_1.10")            \
  F(import_dm, "IBVERBS_1.13")              \
  F(unimport_dm, "IBVERBS_1.13")            \
  F(create_comp_channel, "IBVERBS_1.0")     \
  F(destroy_comp_channel, "IBVERBS_1.0")    \
  F(create_cq, "IBVERBS_1.1")               \
  F(resize_cq, "IBVERBS_1.1")               \
  F(destroy_cq, "IBVERBS_1.1")              \
  F(get_cq_event, "IBVERBS_1.1")            \
  F(ack_cq_events, "IBVERBS_1.1")           \
  F(create_qp, "IBVERBS_1.1")               \
  F(qp_to_qp_ex, "IBVERBS_1.6")             \
  F(modify_qp, "IBVERBS_1.1")               \
  F(query_qp, "IBVERBS_1.1")                \
  F(destroy_qp, "IBVERBS_1.1")              \
  F(query_qp_data_in_order, "IBVERBS_1.14") \
  F(query_ece, "IBVERBS_1.10")              \
  F(set_ece, "IBVERBS_1.10")                \
  F(create_srq, "IBVERBS_1.1")              \
  F(modify_srq, "IBVERBS_1.1")              \
  F(query_srq, "IBVERBS_1.1")               \
  F(destroy_srq, "IBVERBS_1.1")             \
  F(create_ah, "IBVERBS_1.1")               \
  F(init_ah_from_wc, "IBVERBS_1.1")         \
  F(create_ah_from_wc, "IBVERBS_1.1")       \
  F(destroy_ah, "IBVERBS_1.1")              \
  F(attach_mcast, "IBVERBS_1.1")            \
  F(detach_mcast, "IBVERBS_1.1")            \
  F(get_async_event, "IBVERBS_1.1")         \
  F(ack_async_event, "IBVERBS_1.1")         \
  F(resolve_eth_l2_from_gid, "IBVERBS_1.1") \
  F(event_type_str, "IBVERBS_1.1")          \
  F(wc_status_str, "IBVERBS_1.1")

// A pointer is null when the stock library lacks the function. Version 44 and later have all of
// them.
struct StockVerbs {
#define SHIFT_STOCK_MEMBER(name, version) decltype(&::ibv_##name) name = nullptr;
  SHIFT_STOCK_FUNCTIONS(SHIFT_STOCK_MEMBER)
#undef SHIFT_STOCK_MEMBER
  decltype(&::_ibv_query_gid_ex) query_gid_ex = nullptr;        // _ibv_query_gid_ex@IBVERBS_1.11
  decltype(&::_ibv_query_gid_table) query_gid_table = nullptr;  // _ibv_query_gid_table@IBVERBS_1.11
  // How to read the queues of the NICs that a front of direct verbs knows; null: no front is there.
  const WorkRingTable* work_rings = nullptr;
};

// Set by ops::init(). The table must live until the process's last verbs call. The provider defines
// the pointer.
extern const StockVerbs* stock;

}  // namespace shift

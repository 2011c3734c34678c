// What a program is told about its connections while faults are masked. The logic calls the
// connection manager's own functions and asks the layer, each by a table, so it does not matter
// where it is built in.
#pragma once

#include <rdma/rdma_cma.h>

namespace shift::cm {

// The functions beneath.
struct Stock {
  int (*get_event)(rdma_event_channel*, rdma_cm_event**);
  int (*ack_event)(rdma_cm_event*);
  int (*destroy_id)(rdma_cm_id*);
  void (*destroy_ep)(rdma_cm_id*);
  int (*disconnect)(rdma_cm_id*);
  int (*migrate_id)(rdma_cm_id*, rdma_event_channel*);
};

// What the layer is asked (ops/glue.h). The pointers are null in a program without the layer.
struct Layer {
  bool (*qp_is_protected)(ibv_qp* qp);
  bool (*qp_has_left)(ibv_qp* qp);
  bool (*device_is_masked)(ibv_context* context);  // of any device
  void (*on_peer_gone)(void (*call)(ibv_qp* qp));
};
extern const Layer layer;  // defined where the logic is built in

// These stand for rdma_get_cm_event() and so on, and work as those do. A thread may be cancelled in
// get_event() and disconnect().

// `by_stock`: a function of the library itself asks, on behalf of the program.
int get_event(const Stock& stock, rdma_event_channel* channel, rdma_cm_event** event,
              bool by_stock);
int ack_event(const Stock& stock, rdma_cm_event* event);
int disconnect(const Stock& stock, rdma_cm_id* id);
int migrate_id(const Stock& stock, rdma_cm_id* id, rdma_event_channel* channel);
int destroy_id(const Stock& stock, rdma_cm_id* id);
void destroy_ep(const Stock& stock, rdma_cm_id* id);

}  // namespace shift::cm

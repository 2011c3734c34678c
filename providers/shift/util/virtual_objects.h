// What the front of a provider's direct verbs asks the front of libibverbs: which of the objects
// that a program hands to it are virtual, and the real ones behind them.
#pragma once

#include <infiniband/verbs.h>

#include "util/config.h"

namespace shift {

// Makes a queue pair by direct verbs of the NIC's own parts.
using MakeQp = ibv_qp* (*)(ibv_context* real, ibv_qp_init_attr_ex* init, void* argument);

// Each of the first six returns its argument where that is not virtual, and else the default NIC's
// own.
struct VirtualObjects {
  ibv_device* (*device)(ibv_device* device);
  ibv_context* (*context)(ibv_context* context);
  ibv_pd* (*pd)(ibv_pd* pd);
  ibv_cq* (*cq)(ibv_cq* cq);
  ibv_srq* (*srq)(ibv_srq* srq);
  ibv_qp* (*qp)(ibv_qp* qp);

  DirectVerbs (*mode)();
  // One line of the log, at the level `warn`.
  void (*warn)(const char* line);
  // Ends the protection of a virtual object for good, so that its owner may work past the layer.
  // False: it serves what is protected, or its traffic is not on the default NIC.
  bool (*let_go_qp)(ibv_qp* qp);
  bool (*let_go_cq)(ibv_cq* cq);  // with all QPs on it
  bool (*let_go_srq)(ibv_srq* srq);
  // A queue pair of a virtual context that is not protected.
  ibv_qp* (*make_qp)(ibv_context* context, ibv_qp_init_attr_ex* init, MakeQp make, void* argument);
  // A list of the stock library's becomes one that ibv_free_device_list() takes. nullptr: no
  // memory.
  ibv_device** (*own_list)(ibv_device** list, int count);
};

}  // namespace shift

// Exported by the front of libibverbs. Not there: a process without it, in which nothing is
// virtual.
extern "C" __attribute__((weak)) const shift::VirtualObjects* shift_virtual_objects();

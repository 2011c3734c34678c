// The questions of the front of a provider's direct verbs to the front of libibverbs: which objects
// of a program are virtual, and which real objects they stand for.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>

#include "util/config.h"

namespace shift {

// Makes a queue pair by direct verbs of the NIC's own parts.
using MakeQp = ibv_qp* (*)(ibv_context* real, ibv_qp_init_attr_ex* init, void* argument);

// The two fronts of a process may be of different builds: a process that has loaded one before an
// upgrade may load the other after it. So this table only ever grows at its end, and nothing in it
// changes its meaning. A front that wants more than the first version had looks at `size` first.
//
// Each of the first six functions returns its argument when that is not virtual, and otherwise the
// real object on the default NIC.
struct VirtualObjects {
  size_t size;  // bytes of the table, as its maker knows it
  ibv_device* (*device)(ibv_device* device);
  ibv_context* (*context)(ibv_context* context);
  ibv_pd* (*pd)(ibv_pd* pd);
  ibv_cq* (*cq)(ibv_cq* cq);
  ibv_srq* (*srq)(ibv_srq* srq);
  ibv_qp* (*qp)(ibv_qp* qp);

  DirectVerbs (*mode)();
  // Writes one line to the log, at the level `warn`.
  void (*warn)(const char* line);
  // Ends the protection of a virtual object for good, so that the program may use it past the
  // layer. Returns false when the object serves protected objects, or when its traffic is not on
  // the default NIC.
  bool (*let_go_qp)(ibv_qp* qp);
  bool (*let_go_cq)(ibv_cq* cq);  // with all QPs on it
  bool (*let_go_srq)(ibv_srq* srq);
  // Makes a queue pair of a virtual context; the queue pair is not protected.
  ibv_qp* (*make_qp)(ibv_context* context, ibv_qp_init_attr_ex* init, MakeQp make, void* argument);
  // Turns a device list of the stock library into one that the front's ibv_free_device_list()
  // takes. Returns nullptr when there is no memory.
  ibv_device** (*own_list)(ibv_device** list, int count);
};
static_assert(offsetof(VirtualObjects, mode) == 7 * sizeof(void*) &&
              offsetof(VirtualObjects, let_go_qp) == 9 * sizeof(void*) &&
              offsetof(VirtualObjects, own_list) == 13 * sizeof(void*));

}  // namespace shift

// The front of libibverbs exports this function. In a process without the front, the function does
// not exist, and no object is virtual.
extern "C" __attribute__((weak)) const shift::VirtualObjects* shift_virtual_objects();

// What others may know of a queue pair: its entry in the fabric's table, and the event log.
#pragma once

#include "nic/mlx5_layout.h"

namespace cxemu {

struct Qp;

// Brings the entry up to date. Cheap, but it writes to shared memory: at changes of state, and now
// and then for the packet numbers.
void qp_publish(const Qp& qp);
// The QP went to ERR for this reason: a syndrome of its completion, or `event`, an ibv_event_type.
void qp_error_publish(const Qp& qp, Syndrome syndrome, int event);

}  // namespace cxemu

// What other processes can see of a queue pair: its entry in the fabric's table, and the event log.
#pragma once

#include "nic/mlx5_layout.h"

namespace cxemu {

struct Qp;

// Updates the entry. This is cheap, but it writes to shared memory, so it is called at changes of
// state and, for the packet numbers, now and then.
void qp_publish(const Qp& qp);
// Logs why the QP went to ERR: a syndrome of its completion, or `event`, an ibv_event_type.
void qp_error_publish(const Qp& qp, Syndrome syndrome, int event);

}  // namespace cxemu

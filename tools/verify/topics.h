// The checks themselves, by topic. checks.cc says what each of them is about.
#pragma once

#include "check.h"

namespace shift::verify {

// fence.cc: what a QP in ERR still does.
Outcome check_flush_all(const Subject&);
Outcome check_marker_last(const Subject&);
Outcome check_err_shuts(const Subject&);
Outcome check_error_event(const Subject&);

// responder.cc: what the receiving end tells.
Outcome check_rq_psn(const Subject&);
Outcome check_last_wqe(const Subject&);
Outcome ask_write_order(const Subject&, Wire&);
void answer_write_order(const Subject&, Wire&);

// life.cc: connections that are made again, and how long commands take.
Outcome check_reconnect(const Subject&);
Outcome check_new_psn(const Subject&);
Outcome check_commands(const Subject&);
Outcome check_cq_resize(const Subject&);
Outcome check_patience(const Subject&);

// memory.cc: what registered memory costs and needs.
Outcome check_locked_memory(const Subject&);
Outcome check_registration(const Subject&);

// system.cc: the kernel and libraries.
Outcome check_membarrier(const Subject&);
Outcome check_link_watch(const Subject&);

// network.cc: ports and addresses.
Outcome check_port(const Subject&);
Outcome check_address(const Subject&);
Outcome check_subnets(const Subject&);

// control.cc: how processes find each other.
Outcome check_listen(const Subject&);
Outcome ask_control(const Subject&, Wire&);
void answer_control(const Subject&, Wire&);

// paths.cc: what passes between NICs.
Outcome ask_path(const Subject&, Wire&);
void answer_path(const Subject&, Wire&);

// pairs.cc: which NICs back each other.
Outcome check_pairing(const Subject&);

// cost.cc: the hot path with the layer and without it.
Outcome check_cost(const Subject&);

// failover.cc: test traffic under the layer, through a fault.
Outcome ask_failover(const Subject&, Wire&);
void answer_failover(const Subject&, Wire&);
Outcome ask_link_down(const Subject&, Wire&);

}  // namespace shift::verify

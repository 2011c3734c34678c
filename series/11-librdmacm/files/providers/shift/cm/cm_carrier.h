// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// What librdmacm asks the provider of events of connections.
#pragma once

#include <rdma/cm_stack.h>

extern const rdma_cm_stack_ops shift_cm_stack_ops;

// The header by itself, as C++.
#include <rdma/shift-wire.h>

static_assert(sizeof(shift_wire_header) == 20);

// The capabilities of a device group. For what protected objects need, the group can do what all
// its members can do. An unprotected object stays on the default NIC, so only that NIC's
// capabilities count for it.
#pragma once

#include <infiniband/verbs.h>

namespace shift::ops {

// Lowers `attr`, the capabilities of one NIC, to what the NIC of `other` can do, too.
void limit_to(ibv_device_attr& attr, const ibv_device_attr& other);
void limit_to(ibv_device_attr_ex& attr, const ibv_device_attr_ex& other);
void limit_to(ibv_port_attr& attr, const ibv_port_attr& other);

}  // namespace shift::ops

// What a group of NICs can do: what all its members can, as far as protected objects need it. What
// is not protected stays on the default NIC, whose word counts for it.
#pragma once

#include <infiniband/verbs.h>

namespace shift::ops {

// Lowers `attr`, a NIC's, to what `other` can do, too.
void limit_to(ibv_device_attr& attr, const ibv_device_attr& other);
void limit_to(ibv_device_attr_ex& attr, const ibv_device_attr_ex& other);
void limit_to(ibv_port_attr& attr, const ibv_port_attr& other);

}  // namespace shift::ops

// The memory that an application gives out for objects on its domain.
#pragma once

namespace shift::group {
struct ProtectionDomain;
}  // namespace shift::group

namespace shift::ops {

// What objects on the domain have let go of goes to its allocator.
void give_back_released(group::ProtectionDomain& pd);

}  // namespace shift::ops

// The memory that an application's allocators give for objects on its domain.
#pragma once

namespace shift::group {
struct ProtectionDomain;
}  // namespace shift::group

namespace shift::ops {

// Returns the memory that the layer's threads have released to the allocators of the domain. Called
// on a thread of the application.
void give_back_released(group::ProtectionDomain& pd);

}  // namespace shift::ops

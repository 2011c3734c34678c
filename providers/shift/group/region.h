// Memory regions: the region on the default NIC, and a twin of it on each further member.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>

#include "group/device.h"
#include "util/unique_fd.h"

namespace shift::group {

// The application's handle is the default NIC's own object. The layer writes the virtual context
// and PD into it, except while the stock library looks at it (ops/memory.cc). It cannot be a copy:
// providers keep data next to a region that they look for when a request names it (IBV_WR_BIND_MW).
//
// Filled in before the region is added to its context; later changes are under Context::mutex.
struct MemoryRegion {
  ibv_mr mr;  // what the application is shown, with the default member's lkey and rkey
  // The command threads make the registrations on the further members.
  // kAbsent: nobody has asked for the registration there (twin_regions_want()).
  enum class Twin : uint8_t { kQueued, kRunning, kReady, kFailed, kAbsent };
  struct Member {
    ibv_mr* real = nullptr;
    Twin twin = Twin::kQueued;  // under Context::mutex
  };
  PerMember<Member> members;
  // How the region is registered on the further members; kOnDefault: not at all.
  enum class Kind : uint8_t { kMemory, kDmabuf, kNull, kOnDefault };
  Kind kind = Kind::kMemory;
  UniqueFd fd;  // for kDmabuf: the layer's own descriptor
  uint64_t offset = 0;
  unsigned access = 0;
  uint64_t iova = 0;

  // The handle. It is `mr` when the default NIC was dead, and so has no region.
  ibv_mr* shown() { return members[kDefault].real != nullptr ? members[kDefault].real : &mr; }
  // Whether any twin has reached the state. For this and twins_set() the caller holds
  // Context::mutex.
  bool any_twin(Twin state) const {
    return std::ranges::any_of(members, [&](const Member& one) { return one.twin == state; });
  }
  void twins_set(Twin state) {
    for (Member& one : members) one.twin = state;
  }
  bool deregistered = false;  // a queued registration does not begin. Under Context::mutex
  // Counts the changes of what is registered; a queued registration of an older one does not begin.
  // Under Context::mutex.
  uint32_t generation = 0;
};

}  // namespace shift::group

// Memory regions: the default NIC's own, and a twin of each on the further members.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>

#include "group/device.h"
#include "util/unique_fd.h"

namespace shift::group {

// The application's handle is the default NIC's own object, which names the virtual context and PD
// for as long as the stock library does not look at it (ops/memory.cc): providers keep things
// behind a region that they want to see when it is named in a request (IBV_WR_BIND_MW).
//
// Filled in before it is registered with its context; what changes afterwards is under
// Context::mutex.
struct MemoryRegion {
  ibv_mr mr;  // what the application is shown; lkey and rkey are the default member's
  // The further members' registrations are made by the worker.
  enum class Twin : uint8_t { kQueued, kRunning, kReady, kFailed };
  struct Member {
    ibv_mr* real = nullptr;
    Twin twin = Twin::kQueued;  // under Context::mutex
  };
  PerMember<Member> members;
  // How it is registered on the further members.
  enum class Kind : uint8_t { kMemory, kDmabuf, kNull, kOnDefault };  // the last: it is not
  Kind kind = Kind::kMemory;
  UniqueFd fd;  // kDmabuf: our own
  uint64_t offset = 0;
  unsigned access = 0;
  uint64_t iova = 0;

  // The handle. Where the default NIC has no region, being dead, it is our own.
  ibv_mr* shown() { return members[kDefault].real != nullptr ? members[kDefault].real : &mr; }
  // Whether any of the twins has got there. Caller holds Context::mutex, as of the next.
  bool any_twin(Twin state) const {
    return std::ranges::any_of(members, [&](const Member& one) { return one.twin == state; });
  }
  void twins_set(Twin state) {
    for (Member& one : members) one.twin = state;
  }
  bool deregistered = false;  // what is queued yet is not begun. Under Context::mutex
};

}  // namespace shift::group

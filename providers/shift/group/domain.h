// Protection domains, parent domains among them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "group/device.h"

namespace shift::group {

// Filled in before the application has it, but for what is noted.
struct ProtectionDomain {
  ibv_pd pd;
  PerMember<ibv_pd*> real{};
  std::atomic<int> users{0};
  // Of a parent domain: what it was made of. On the further members the two are one.
  ProtectionDomain* base = nullptr;
  // The application's, for objects on the default; called with its handle, and by its threads.
  ibv_parent_domain_init_attr allocators{};
  struct Released {
    void* memory;
    uint64_t resource_type;
  };
  std::mutex mutex;
  std::vector<Released> released;  // by one of the layer's threads; under mutex

  const ProtectionDomain& domain() const { return base != nullptr ? *base : *this; }
  static ProtectionDomain* from(ibv_pd* pd) { return reinterpret_cast<ProtectionDomain*>(pd); }
};
static_assert(offsetof(ProtectionDomain, pd) == 0);

}  // namespace shift::group

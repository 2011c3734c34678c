// Protection domains and parent domains.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "group/context.h"
#include "group/device.h"
#include "group/held.h"

namespace shift::group {

// Filled in before the application gets it, unless a comment says otherwise.
struct ProtectionDomain {
  ibv_pd pd;
  // Those of the further members belong to the command threads.
  PerMember<ibv_pd*> real{};
  std::atomic<int> users{0};
  // For a parent domain: the domain that it was made from. On the further members both are one.
  ProtectionDomain* base = nullptr;
  // The application's allocators, for objects on the default NIC. They are called with the
  // application's handle, on its threads only.
  ibv_parent_domain_init_attr allocators{};
  struct Released {
    void* memory;
    uint64_t resource_type;
  };
  // Bit n: the domain's regions are registered on member n. Changed under Context::mutex. This and
  // the next are not used in a parent domain.
  std::atomic<uint8_t> registers_on{0xff};
  // How many regions are still being registered on each member that were made before it was wanted.
  // Under Context::mutex.
  PerMember<int> catching_up{};
  std::mutex mutex;
  std::vector<Released> released;  // what the layer's threads have released; under mutex
  Holders holders;
  Held<Context> context;             // null in tests
  Held<ProtectionDomain> base_held;  // null, or `base`

  ProtectionDomain& domain() { return base != nullptr ? *base : *this; }
  const ProtectionDomain& domain() const { return base != nullptr ? *base : *this; }
  static ProtectionDomain* from(ibv_pd* pd) { return reinterpret_cast<ProtectionDomain*>(pd); }
};
static_assert(offsetof(ProtectionDomain, pd) == 0);

}  // namespace shift::group

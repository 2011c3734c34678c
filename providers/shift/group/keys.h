// Translation of memory keys to the backup member. Cold: only paths that left the default use it.
#pragma once

#include <chrono>

#include "group/objects.h"

namespace shift::group {

enum class KeyState : uint8_t { kReady, kPending, kMissing };

// The backup's lkey for the application's lkey.
KeyState local_key(Context& context, uint32_t lkey, uint32_t* out);

// Rewrites the lkeys of a list in place; zero-length elements need none. Waits until `deadline` for
// registrations that are still being made. False: a key is unknown or its registration failed.
[[nodiscard]] bool translate_local(Context& context, ibv_sge* sges, int count,
                                   std::chrono::steady_clock::time_point deadline);

// The region of this protection domain that a peer names by its default rkey, for its KeyQuery.
KeyState exported_key(Context& context, const ProtectionDomain* pd, uint32_t rkey, uint32_t* out);

}  // namespace shift::group

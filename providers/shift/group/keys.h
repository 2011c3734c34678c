// Translation of memory keys to another member's. Cold: only paths off the default use it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace shift::group {

struct Context;
struct Group;
struct ProtectionDomain;

enum class KeyState : uint8_t { kReady, kPending, kMissing };

// Rewrites the lkeys of a list in place to the member's; zero-length elements need none. kPending:
// a registration is still being made, and nothing was rewritten.
[[nodiscard]] KeyState translate_local(Context& context, int member, ibv_sge* sges, int count);

// Whether memory that a round posts itself is still being registered with a further member: that of
// receives below position `receives_end` that were not consumed, and of READs under way, whose data
// may have to be read again. What else is sent waits by itself (pump()). Sends must be parked.
[[nodiscard]] bool round_awaits_registration(Group& group, uint64_t receives_end = UINT64_MAX);

// The region of this protection domain that a peer names by its default rkey, for its KeyQuery.
KeyState exported_key(Context& context, int member, const ProtectionDomain* pd, uint32_t rkey,
                      uint32_t* out);

}  // namespace shift::group

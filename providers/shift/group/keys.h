// Translates memory keys into those of another member. Cold: only paths off the default need it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace shift::group {

struct Context;
struct Group;
struct ProtectionDomain;

enum class KeyState : uint8_t { kReady, kPending, kMissing };

// Replaces the lkeys of a list by those of the member; elements of length zero need none. Unless
// the answer is kReady, nothing is replaced. kPending: a registration is still being made.
[[nodiscard]] KeyState translate_local(Context& context, int member, ibv_sge* sges, int count);

// Whether memory that a round posts itself is still being registered with a further member, or
// memory that was not wanted there before (twin_regions_want()). A round posts the receives below
// position `receives_end` that were not consumed, and the READs under way, whose data it may have
// to read again. Other requests wait on their own (pump()). Sends must be parked.
[[nodiscard]] bool round_awaits_registration(Group& group, uint64_t receives_end = UINT64_MAX);

// Finds the region of this protection domain that has this rkey on the default NIC. A region that
// nobody has asked for on the member is missing there.
KeyState exported_key(Context& context, int member, const ProtectionDomain* pd, uint32_t rkey,
                      uint32_t* out);
// Does the same in answer to the KeyQuery of the group's peer, who will hear when the key is gone.
KeyState tell_key(Group& group, int member, uint32_t rkey, uint32_t* out);
// No request of the group's peer can use a key any more that the peer was told so far: the path is
// shut, or one of the two QPs is gone.
void told_keys_forget(Group& group);

}  // namespace shift::group

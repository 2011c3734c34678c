// Opens the new path of a fenced group for the messages that it receives.
#pragma once

#include <cstdint>

namespace shift::group {

struct Group;

// Commits a fenced group to a path: the receives that were not consumed are posted on the member's
// QP, and later receives follow. If the region of one is still being registered there, that receive
// and all after it wait.
enum class Commit : uint8_t { kDone, kKeyMissing, kUnusable };
[[nodiscard]] Commit commit(Group& group, int member, int peer_member);

}  // namespace shift::group

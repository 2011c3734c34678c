// Opening the new path of a fenced group for what it receives.
#pragma once

#include <cstdint>

namespace shift::group {

struct Group;

// Commits a fenced group to a path: receives that were not consumed go on the member's QP, and
// later ones follow. From the first one on whose region is still being registered there they wait.
enum class Commit : uint8_t { kDone, kKeyMissing, kUnusable };
[[nodiscard]] Commit commit(Group& group, int member, int peer_member);

}  // namespace shift::group

// Opening the new path of a fenced group for what it receives.
#pragma once

#include <chrono>
#include <cstdint>

namespace shift::group {

struct Group;

using Clock = std::chrono::steady_clock;

// Commits a fenced group to a path: receives that were not consumed go on the member's QP, and
// later ones follow.
enum class Commit : uint8_t { kDone, kKeyMissing, kUnusable };
[[nodiscard]] Commit commit(Group& group, int member, int peer_member, Clock::time_point deadline);

}  // namespace shift::group

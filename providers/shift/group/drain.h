// The way to a better path: a group leaves a path that works when all requests that are under way
// on it are over.
#pragma once

namespace shift::group {

struct Group;

// Whether everything that was posted has completed. Parks the requests (park_sends), and tries to
// post a marker behind them until there is room for it.
[[nodiscard]] bool is_drained(Group& group);
// Posts the parked requests on the path that the group is committed to. Returns the result of
// pump().
[[nodiscard]] int unpark(Group& group);

}  // namespace shift::group

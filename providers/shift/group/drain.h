// The way back: a group leaves a working path when all requests that are under way on it are over.
#pragma once

namespace shift::group {

struct Group;

// For a group off the default path: parks its requests, while receives are still posted (a peer
// that finds no receive could never drain). is_drained() then posts a marker.
void park_sends(Group& group);
// Whether everything that was posted has completed. Tries to post the marker until there is room
// for it.
[[nodiscard]] bool is_drained(Group& group);
// Posts the parked requests on the path that the group is committed to. Returns the result of
// pump().
[[nodiscard]] int unpark(Group& group);

}  // namespace shift::group

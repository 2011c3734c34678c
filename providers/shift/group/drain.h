// The way back: a working path is left when all that is under way on it has ended.
#pragma once

namespace shift::group {

struct Group;

// Off the default path: parks what is sent, while receives go on being posted (a peer that finds
// none could never drain). Then a marker follows what is under way.
void park_sends(Group& group);
// Whether everything that was posted has completed. Tries to post the marker until there is room.
[[nodiscard]] bool is_drained(Group& group);
// Posts what was parked on the path we are committed to. As pump().
[[nodiscard]] int unpark(Group& group);

}  // namespace shift::group

// The notice board of this process (state/board.h), and what is known of the process itself.
#pragma once

#include "state/board.h"

namespace shift::control {

// Thread-safe; throws std::bad_alloc. A fork child has a board of its own. It is never destroyed;
// its file is removed when the process ends in order.
state::Board& process_board();

// Tells that the NIC of this name is not protected, because it stands alone. Thread-safe.
void tell_alone(const char* device, const char* why) noexcept;

}  // namespace shift::control

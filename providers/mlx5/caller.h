// Which module calls a function of direct verbs, and what it is linked with.
#pragma once

namespace shift::mlx5 {

// Whether the module (the program or a library) that holds this address is linked with functions
// that make queues or look into them, so that it will do so when it is told that it may. A module
// that looks functions up by name may do so, too, but then sees each refusal. True when nothing is
// known of the module. For any thread; takes the dynamic linker's lock, as dladdr() does.
bool is_linked_with_queues(const void* address) noexcept;

}  // namespace shift::mlx5

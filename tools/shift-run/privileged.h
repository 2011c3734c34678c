// Recognises commands that the dynamic linker starts without LD_LIBRARY_PATH.
#pragma once

#include <string>

namespace shift::run {

// Why the layer cannot be loaded into `command`, which is looked up as execvp() does. Empty if it
// can, as far as the file tells.
std::string unreachable_because(const std::string& command);

}  // namespace shift::run

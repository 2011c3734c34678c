// Replaces a file as a whole: whoever reads it finds all of the old text or all of the new one.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace shift::ctl {

// Writes the text into a new file beside `name`, whose place it takes. `directory` may be AT_FDCWD,
// and then `name` a path. Returns an empty text, or why the old file is still there.
std::string file_replace(int directory, const std::string& name, std::string_view text,
                         mode_t mode);

}  // namespace shift::ctl

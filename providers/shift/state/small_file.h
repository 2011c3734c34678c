// Small files in a user's folder (directory.h) that processes leave for later ones. Each is
// replaced as a whole, so that a reader sees one content or the other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace shift::state {

// Tells one content of a file from the next.
struct FileVersion {
  dev_t device = 0;
  ino_t number = 0;
  int64_t changed_ns = 0;

  bool operator==(const FileVersion&) const = default;
};

// Reads the file into `content`, `max` bytes at most, unless it still has the version `known`.
// Returns its version; all zeros, with nothing in `content`: there is no file, or it, or the
// folder, cannot be believed.
FileVersion small_file_read(const std::string& base, uid_t uid, const std::string& name, size_t max,
                            const FileVersion& known, std::string& content);

// Puts a file with this content in the place of the old one. A full disk, or a folder that is not
// this user's alone, leaves everything as it is; then the result is false.
bool small_file_write(const std::string& base, uid_t uid, const std::string& name,
                      std::string_view content);

}  // namespace shift::state

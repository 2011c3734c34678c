// What processes of this user have seen of other hosts: which addresses belong to one host. It lies
// in the user's folder (directory.h) as text, a line for each GID:
//
//   GID SECONDS ADDRESS...     32 hexadecimal digits; since 1970; as 10.0.0.1
//
// Another process may replace the file at any time, and so may another version of the layer: lines
// that are not understood are left out. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "state/small_file.h"

namespace shift::state {

inline constexpr char kHostsName[] = "hosts";
inline constexpr size_t kHostsFileMax = size_t{1} << 20;  // bytes

struct HostLine {
  std::array<uint8_t, 16> gid{};
  int64_t seen_s = 0;
  std::vector<uint32_t> addresses_be;  // network byte order, 16 at most

  bool operator==(const HostLine&) const = default;
};

class HostsFile {
 public:
  HostsFile(std::string base, uid_t uid) : base_(std::move(base)), uid_(uid) {}

  // Reads the file if it has changed since the last call. Nothing can be believed, or nothing is
  // there: the result is empty.
  const std::vector<HostLine>& read();
  // How often read() has found another content.
  uint64_t changes() const { return changes_; }
  // Puts a new file in the place of the old one. A full disk, or a folder that is not this user's
  // alone, leaves everything as it is.
  void write(const std::vector<HostLine>& lines);

 private:
  const std::string base_;
  const uid_t uid_;
  FileVersion version_;
  uint64_t changes_ = 0;
  std::vector<HostLine> lines_;
};

}  // namespace shift::state

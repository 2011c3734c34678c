// The operator's map of hosts (SHIFT_PEERS): which addresses belong to one host. A file of lines,
// one for each host, with its addresses and GIDs, separated by blanks; "#" begins a comment:
//
//   10.0.1.7 10.0.2.7 192.168.0.7               # node7: its NICs, and the management network
//   fe80::ee0d:9aff:fe12:3456 192.168.0.8       # a GID without an address
//
// It is plain text of a stranger's making: bounded in size, and each line is checked.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace shift {

class HostMap {
 public:
  using RawGid = std::array<uint8_t, 16>;
  static constexpr size_t kFileMax = size_t{4} << 20;  // bytes
  static constexpr size_t kOnLineMax = 32;             // addresses and GIDs of one host

  // An empty map.
  HostMap() = default;

  // Reads a file that nobody but its owner, who is root or this process's user, may write to.
  // Otherwise, or when a line is wrong, the map is empty, and `why` says so.
  static HostMap read(const std::string& path, std::string& why);
  // Reads the text of such a file. False, with the reason: a line is wrong.
  bool parse(std::string_view text, std::string& why);

  // The IPv4 addresses of the host that has the GID, in network byte order, as they stand in the
  // file.
  std::vector<uint32_t> addresses_of(const RawGid& gid) const;
  size_t hosts() const { return hosts_.size(); }

 private:
  struct Hash {
    size_t operator()(const RawGid& gid) const noexcept {
      return std::hash<std::string_view>{}({reinterpret_cast<const char*>(gid.data()), gid.size()});
    }
  };
  std::vector<std::vector<uint32_t>> hosts_;
  std::unordered_map<RawGid, size_t, Hash> host_of_;
};

}  // namespace shift

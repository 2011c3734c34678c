// What the store holds of a host: under a key for each of its GIDs, one line of text with the
// addresses at which its processes can be reached. Readers believe nothing (C11).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wire/names.h"

namespace shift::net {

inline constexpr size_t kHostAddressesMax = 16;  // in one line

// "PREFIX:gid:" and the GID's 32 hexadecimal digits.
std::string host_entry_key(std::string_view prefix, const wire::Gid& gid);

// Whether processes of another host can be reached at the address: no multicast, reserved,
// broadcast or zero address, and a loopback one only where hosts are emulated on one machine.
bool may_be_a_hosts(uint32_t ip_be, bool on_loopback);

// "1 10.0.0.1 10.0.0.2" of usable addresses, in their order by number: the same addresses always
// give the same line. What is beyond the bound is left out. Empty when there is none.
std::string host_entry_line(std::vector<uint32_t> ips_be, bool on_loopback);

enum class HostEntry : uint8_t {
  kGood,
  kOtherVersion,  // from a later release, perhaps
  kBad,           // anything else that is not exactly such a line
};
// Appends the addresses of a good line.
HostEntry host_entry_parse(std::string_view line, bool on_loopback, std::vector<uint32_t>& ips_be);

}  // namespace shift::net

// Checks the ICRC of a RoCEv2 datagram directly by the text of the standard and bit by bit. It
// shares no code with what it judges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cxemu::test {

// `datagram`: from the first byte of the IPv4 header to the last byte of the ICRC.
inline bool icrc_valid(const std::vector<uint8_t>& datagram) {
  if (datagram.size() < 20 + 8 + 12 + 4) return false;
  std::vector<uint8_t> covered(8 + datagram.size() - 4, 0xff);
  std::copy(datagram.begin(), datagram.end() - 4, covered.begin() + 8);
  // Masked after the first eight bytes: type of service, time to live, header checksum, UDP
  // checksum, resv8a.
  for (const size_t masked : {1, 8, 10, 11, 26, 27, 32}) covered[8 + masked] = 0xff;
  uint32_t remainder = 0xffffffff;
  for (const uint8_t byte : covered) {
    for (int bit = 0; bit < 8; bit++) {
      const bool divide = ((remainder ^ byte >> bit) & 1) != 0;
      remainder = remainder >> 1 ^ (divide ? 0xedb88320 : 0);
    }
  }
  remainder = ~remainder;
  for (size_t i = 0; i < 4; i++) {
    if (datagram[datagram.size() - 4 + i] != static_cast<uint8_t>(remainder >> 8 * i)) return false;
  }
  return true;
}

}  // namespace cxemu::test

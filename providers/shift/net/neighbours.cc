// Reads the kernel's neighbour table.
#include "net/neighbours.h"

#include <arpa/inet.h>
#include <net/if_arp.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "net/socket.h"
#include "util/log.h"

namespace shift::net {
namespace {

struct Entry {
  uint32_t ip_be;
  Mac mac;
};

// A line is "address  0xtype  0xflags  mac  mask  device". Nothing for the headline, for entries
// without a MAC address and for lines that are damaged.
std::optional<Entry> entry_of(const std::string& line) {
  char address[INET_ADDRSTRLEN];
  unsigned type = 0, flags = 0;
  Entry entry;
  Mac& m = entry.mac;
  if (sscanf(line.c_str(), "%15s 0x%x 0x%x %2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", address, &type,
             &flags, &m[0], &m[1], &m[2], &m[3], &m[4], &m[5]) != 9 ||
      type != ARPHRD_ETHER || (flags & ATF_COM) == 0 ||
      inet_pton(AF_INET, address, &entry.ip_be) != 1)
    return std::nullopt;
  return entry;
}

}  // namespace

std::optional<Mac> mac_of(const wire::Gid& gid) noexcept {
  const auto& g = gid.raw;
  if (g[0] != 0xfe || (g[1] & 0xc0) != 0x80 || g[11] != 0xff || g[12] != 0xfe) return std::nullopt;
  constexpr uint8_t kIsLocal = 2;  // inverted in GIDs
  return Mac{static_cast<uint8_t>(g[8] ^ kIsLocal), g[9], g[10], g[13], g[14], g[15]};
}

bool table_contradicts(std::istream& table, uint32_t ip_be, const Mac& mac) {
  bool contradicts = false;
  for (std::string line; std::getline(table, line);) {
    const auto entry = entry_of(line);
    if (!entry || entry->ip_be != ip_be) continue;
    if (entry->mac == mac) return false;
    contradicts = true;
  }
  return contradicts;
}

bool neighbour_contradicts(uint32_t ip_be, const wire::Gid& gid) {
  const auto mac = mac_of(gid);
  if (!mac) return false;
  std::ifstream table("/proc/net/arp");
  if (!table_contradicts(table, ip_be, *mac)) return false;
  SHIFT_WARN_LIMITED(
      "%s says that it has GID %s, but has another MAC address on the link: it is not believed; if "
      "its host has several NICs in one subnet, set net.ipv4.conf.all.arp_ignore=1 there, or use a "
      "job key",
      IpText(ip_be).c_str(), GidText(gid).c_str());
  return true;
}

}  // namespace shift::net

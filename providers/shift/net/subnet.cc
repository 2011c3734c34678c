// Finds subnets among the interfaces of the host.
#include "net/subnet.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <memory>

namespace shift::net {
namespace {

constexpr uint32_t kPairMask = 0xfffffffe;  // RFC 3021: both addresses belong to hosts

}  // namespace

std::optional<Subnet> subnet_of(uint32_t ip_be) {
  struct ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<struct ifaddrs, void (*)(struct ifaddrs*)> owned(list, freeifaddrs);
  std::optional<Subnet> found;
  for (const struct ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr ||
        entry->ifa_addr->sa_family != AF_INET)
      continue;
    const uint32_t address_be =
        reinterpret_cast<const struct sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr;
    const uint32_t mask_be =
        reinterpret_cast<const struct sockaddr_in*>(entry->ifa_netmask)->sin_addr.s_addr;
    const Subnet subnet{ip_be, mask_be};
    // All addresses of the loopback network belong to each host, whichever of them the interface
    // has.
    const bool is_ours = address_be == ip_be ||
                         (ntohl(address_be) >> 24 == IN_LOOPBACKNET && subnet.holds(address_be));
    if (!is_ours) continue;
    if (!found || ntohl(mask_be) > ntohl(found->mask_be)) found = subnet;
  }
  if (found && ntohl(found->mask_be) >= kPairMask) found.reset();
  return found;
}

}  // namespace shift::net

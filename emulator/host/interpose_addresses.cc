// Replaces the C library's list of interface addresses. Programs look there for the interface that
// has the address of a NIC, or of a connection through it. The NICs' addresses are inside the
// loopback network, so they are listed as addresses of its interface, which the GID table's network
// devices name, too.
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdlib>
#include <span>

#include "fabric/gid.h"
#include "host/guest.h"
#include "host/interpose.h"
#include "host/real.h"

namespace {

using cxemu::FabricNic;
using cxemu::Guest;
using cxemu::Real;

Real<int(ifaddrs**)> g_getifaddrs("getifaddrs");
Real<void(ifaddrs*)> g_freeifaddrs("freeifaddrs");

constexpr size_t kAddressesMax = 2 * cxemu::kMaxNicsPerHost;

// The name in the entries that we add; its address distinguishes them from the C library's entries.
char g_loopback[] = "lo";

// The entries added to one list: a block of memory, linked after the list's own entries.
struct Added {
  ifaddrs entry;  // must be first
  sockaddr_in address, netmask;
};

// An address that a fault gave the NIC is listed in addition, because TCP works through both.
size_t addresses_of(const Guest& guest, uint32_t (&found_be)[kAddressesMax]) {
  size_t count = 0;
  for (int index = 0; index < cxemu::kMaxNicsPerHost; ++index) {
    const FabricNic* nic = guest.nic(index);
    if (nic == nullptr) continue;
    found_be[count++] = nic->ipv4_be;
    const uint32_t now_be = gid_ipv4_be(*nic, gid_index_now(*nic, cxemu::kGidRoceV2Ipv4));
    if (now_be != nic->ipv4_be) found_be[count++] = now_be;
  }
  return count;
}

void fill(std::span<Added> added, const uint32_t* addresses_be) {
  for (size_t i = 0; i < added.size(); ++i) {
    Added& one = added[i];
    one = {};
    one.address.sin_family = one.netmask.sin_family = AF_INET;
    one.address.sin_addr.s_addr = addresses_be[i];
    one.netmask.sin_addr.s_addr = htonl(IN_CLASSA_NET);
    one.entry.ifa_next = i + 1 < added.size() ? &added[i + 1].entry : nullptr;
    one.entry.ifa_name = g_loopback;
    one.entry.ifa_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
    one.entry.ifa_addr = reinterpret_cast<sockaddr*>(&one.address);
    one.entry.ifa_netmask = reinterpret_cast<sockaddr*>(&one.netmask);
  }
}

// The pointer to the first entry that satisfies the condition, or to the end of the list.
template <typename Condition>
ifaddrs** link_find(ifaddrs** head, const Condition& is) {
  while (*head != nullptr && !is(**head)) head = &(*head)->ifa_next;
  return head;
}

}  // namespace

CXEMU_EXPORT(int, getifaddrs, (ifaddrs * *list)) {
  const int result = g_getifaddrs(list);
  const Guest* guest = Guest::get();
  if (result != 0 || guest == nullptr) return result;
  uint32_t addresses_be[kAddressesMax];
  const size_t count = addresses_of(*guest, addresses_be);
  if (count == 0) return 0;
  auto* added = static_cast<Added*>(malloc(count * sizeof(Added)));
  if (added == nullptr) {
    g_freeifaddrs(*list);
    errno = ENOMEM;
    return -1;
  }
  fill({added, count}, addresses_be);
  *link_find(list, [](const ifaddrs&) { return false; }) = &added->entry;
  return 0;
}

CXEMU_EXPORT(void, freeifaddrs, (ifaddrs * list)) {
  ifaddrs** link = link_find(&list, [](const ifaddrs& e) { return e.ifa_name == g_loopback; });
  free(*link);
  *link = nullptr;
  if (list != nullptr) g_freeifaddrs(list);
}

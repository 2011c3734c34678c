#include "control/address_choice.h"

namespace shift::control {
namespace {

bool is_in_subnet_of(uint32_t ip_be, const HostAddress& address) {
  return address.mask_be != 0 && ((ip_be ^ address.ip_be) & address.mask_be) == 0;
}

int fitness(const HostAddress& address, const HostAddress& application,
            std::optional<uint32_t> peer_ip_be) {
  const bool meets_peer = peer_ip_be && is_in_subnet_of(*peer_ip_be, address);
  const bool same_subnet = is_in_subnet_of(address.ip_be, application);
  const bool same_vlan = address.vlan && address.vlan == application.vlan;
  return (meets_peer ? 4 : 0) + (same_subnet ? 2 : 0) + (same_vlan ? 1 : 0);
}

}  // namespace

size_t address_choose(std::span<const HostAddress> addresses, const HostAddress& application,
                      std::optional<uint32_t> peer_ip_be) {
  size_t best = 0;
  int most = -1;
  for (size_t i = 0; i < addresses.size(); i++) {
    const int fits = fitness(addresses[i], application, peer_ip_be);
    if (fits <= most) continue;
    best = i;
    most = fits;
  }
  return best;
}

}  // namespace shift::control

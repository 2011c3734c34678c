// Checks of the NICs' ports and addresses.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "net/socket.h"
#include "net/subnet.h"
#include "nics.h"
#include "rig.h"
#include "routes.h"
#include "topics.h"

namespace shift::verify {
namespace {

uint32_t ip_of(const Device& device) {
  uint32_t ip_be = 0;
  std::memcpy(&ip_be, device.gid.gid.raw + 12, sizeof ip_be);
  return device.has_ip() ? ip_be : 0;
}

}  // namespace

Outcome check_port(const Subject& subject) {
  const Device device(subject.nic);
  const std::string state = ibv_port_state_str(device.port.state);
  if (device.port.state != IBV_PORT_ACTIVE) return failure("the port's state is " + state);
  const int mtu = mtu_bytes(device.port.active_mtu);
  if (device.port.link_layer != IBV_LINK_LAYER_ETHERNET)
    return warning("the port is InfiniBand, whose GIDs hold no IP address");
  if (device.attr.phys_port_cnt > 1)
    return warning(text("%s, and the device has %d ports, of which the layer uses the first",
                        state.c_str(), device.attr.phys_port_cnt));
  return ok(text("%s, Ethernet, MTU %d", state.c_str(), mtu));
}

Outcome check_address(const Subject& subject) {
  const Device device(subject.nic);
  if (device.gid.gid_type != IBV_GID_TYPE_ROCE_V2)
    return failure("the GID table has no entry for RoCE v2");
  if (!device.has_ip())
    return warning(text("no GID holds an IPv4 address; the best is %s", device.ip().c_str()));
  // A socket can be bound to an address that this host holds, and to no other.
  if (net::tcp_listen(ip_of(device), 0).get() < 0)
    return failure(text("GID %u is %s, and no TCP socket can be bound to it: %s",
                        device.gid.gid_index, device.ip().c_str(), std::strerror(errno)));
  const auto subnet = net::subnet_of(ip_of(device));
  const std::string where =
      subnet ? text("in a subnet of /%d", __builtin_popcount(subnet->mask_be)) : "without a subnet";
  return ok(
      text("GID %u is %s, RoCE v2, %s", device.gid.gid_index, device.ip().c_str(), where.c_str()));
}

namespace {

struct Place {
  std::string nic, ip;
  net::Subnet subnet;
};

// An address of the subnet that neither of them has.
uint32_t neighbour_of(const Place& a, const Place& b) {
  uint32_t ip = ntohl(a.subnet.broadcast_be()) - 1;
  while (htonl(ip) == a.subnet.address_be || htonl(ip) == b.subnet.address_be) ip--;
  return htonl(ip);
}

}  // namespace

Outcome check_subnets(const Subject& subject) {
  std::vector<Place> known;
  for (const std::string& nic : subject.nics) {
    const Device device(nic);
    const auto subnet = net::subnet_of(ip_of(device));
    if (device.has_ip() && subnet) known.push_back({nic, device.ip(), *subnet});
  }
  if (known.size() < 2) return skipped("no two NICs have an IPv4 address in a subnet");
  const Place &a = known[0], &b = known[1];
  const std::string both =
      text("%s %s and %s %s are in", a.nic.c_str(), a.ip.c_str(), b.nic.c_str(), b.ip.c_str());
  if (!a.subnet.holds(b.subnet.address_be)) return ok(both + " different subnets");
  // The loopback device needs no routes.
  if (network_devices(a.nic) == std::vector<std::string>{"lo"})
    return ok("the NICs' addresses are on the loopback device");
  for (const Place& one : known) {
    const std::string leaves = route_device(one.subnet.address_be, neighbour_of(a, b));
    const auto own = network_devices(one.nic);
    if (std::ranges::find(own, leaves) != own.end()) continue;
    if (leaves.empty() || leaves == "lo") return warning(both + " one subnet");
    return warning(text("%s one subnet, and what is sent from %s leaves through %s", both.c_str(),
                        one.ip.c_str(), leaves.c_str()));
  }
  return ok(both + " one subnet, with source routing");
}

}  // namespace shift::verify

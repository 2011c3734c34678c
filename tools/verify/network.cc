// Checks of the NICs' ports and addresses.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "net/socket.h"
#include "net/subnet.h"
#include "nics.h"
#include "rig.h"
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

Outcome check_subnets(const Subject& subject) {
  std::vector<std::pair<std::string, net::Subnet>> known;
  for (const std::string& nic : subject.nics) {
    const Device device(nic);
    const auto subnet = net::subnet_of(ip_of(device));
    if (device.has_ip() && subnet) known.emplace_back(nic + " " + device.ip(), *subnet);
  }
  if (known.size() < 2) return skipped("no two NICs have an IPv4 address in a subnet");
  if (known[0].second.holds(known[1].second.address_be)) {
    // The loopback device needs no routes.
    if (network_devices(subject.nics.front()) == std::vector<std::string>{"lo"})
      return ok("the NICs' addresses are on the loopback device");
    return warning(
        text("%s and %s are in one subnet", known[0].first.c_str(), known[1].first.c_str()));
  }
  return ok(
      text("%s and %s are in different subnets", known[0].first.c_str(), known[1].first.c_str()));
}

}  // namespace shift::verify

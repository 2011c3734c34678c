// Checks of ports and addresses, and of what passes between the NICs of two hosts.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "net/secrets.h"
#include "net/socket.h"
#include "net/subnet.h"
#include "nics.h"
#include "rig.h"
#include "topics.h"
#include "trouble.h"
#include "util/config.h"
#include "util/job_keys.h"
#include "wire.h"

namespace shift::verify {
namespace {

// The layer waits so long for an answer before it takes a host for one without it.
constexpr milliseconds kPresence{100};

uint32_t ip_of(const Device& device) {
  uint32_t ip_be = 0;
  std::memcpy(&ip_be, device.gid.gid.raw + 12, sizeof ip_be);
  return device.has_ip() ? ip_be : 0;
}

uint32_t ip_of(const std::string& ip) {
  in_addr address{};
  return inet_pton(AF_INET, ip.c_str(), &address) == 1 ? address.s_addr : 0;
}

// The ports at which processes of a job would meet here: one for each job key, or one.
std::vector<uint16_t> ports() {
  const uint16_t port = config().port;
  std::string problem;
  std::unique_ptr<JobKeys> keys;
  if (config().key_file) {
    keys = JobKeys::read(*config().key_file, problem);
    if (keys == nullptr) throw Trouble(problem);
  }
  std::vector<uint16_t> all;
  const net::Secrets secrets(std::move(keys));
  for (const uint64_t id : secrets.key_ids()) all.push_back(net::Secrets::port_of(port, id));
  return all;
}

// 0, or the errno with which a connection fails.
int reach(uint32_t from_be, uint32_t to_be, uint16_t port, double& took_ms) {
  const auto start = Clock::now();
  const UniqueFd fd = net::tcp_connect(from_be, to_be, port);
  if (fd.get() < 0) return errno;
  pollfd one{fd.get(), POLLOUT, 0};
  const int ready = ::poll(&one, 1, 1000);
  took_ms = ms_since(start);
  return ready == 1 ? net::socket_error(fd.get()) : ETIMEDOUT;
}

std::vector<std::string> addresses_of(const Subject& subject) {
  std::vector<std::string> all;
  for (const std::string& nic : subject.nics) {
    const Device device(nic);
    if (device.has_ip()) all.push_back(device.ip());
  }
  return all;
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

Outcome check_listen(const Subject& subject) {
  std::string seen;
  for (const uint16_t port : ports()) {
    for (const std::string& ip : addresses_of(subject)) {
      const uint32_t ip_be = ip_of(ip);
      const UniqueFd listener = net::tcp_listen(ip_be, port);
      const int error = errno;
      double took_ms = 0;
      const int problem = reach(ip_be, ip_be, port, took_ms);
      if (listener.get() < 0 && error != EADDRINUSE)
        return failure(
            text("cannot listen at %s, port %u: %s", ip.c_str(), port, std::strerror(error)));
      if (problem != 0)
        return failure(text("%s, port %u%s: %s", ip.c_str(), port,
                            listener.get() < 0 ? ", which another program has" : "",
                            std::strerror(problem)));
      seen += (seen.empty() ? "" : ", ") + ip + ":" + std::to_string(port);
      if (listener.get() < 0) seen += " (in use; a program with SHIFT may have it)";
    }
  }
  if (seen.empty()) return warning("no NIC has an IPv4 address to listen at");
  return ok("can be listened at and reached: " + seen);
}

// Writes over the path, in both directions, with packets of the largest size.
Outcome ask_path(const Subject& subject, Wire& wire) {
  constexpr uint8_t kMark = 0x5a;
  const Device unused(subject.nic);
  const int mtu = mtu_bytes(unused.port.active_mtu);
  std::string problem;
  // The largest packets, and if they do not come through, small ones.
  for (const uint32_t cap :
       {static_cast<uint32_t>(IBV_MTU_4096), static_cast<uint32_t>(IBV_MTU_1024),
        static_cast<uint32_t>(IBV_MTU_256)}) {
    Device device(subject.nic);
    device.port.active_mtu = static_cast<ibv_mtu>(std::min<uint32_t>(device.port.active_mtu, cap));
    Memory memory(device, 65536);
    End end(device);
    wire.say({{"address", end.address().to_json()}});
    const auto peer = wire.hear();
    const Address to = Address::from_json(peer.at("address"));
    end.connect(to, {.timeout = 14, .retries = 3});
    wire.say({{"ready", true}});
    wire.hear();
    const auto size = static_cast<uint32_t>(
        3 * mtu_bytes(std::min<uint32_t>(to.mtu, device.port.active_mtu)) + 1);
    std::memset(memory.at(), kMark, size);
    Request request{.id = 1,
                    .is_signaled = true,
                    .from = memory.address(),
                    .lkey = memory.lkey(),
                    .size = size,
                    .to = peer.value("memory", uint64_t{0}),
                    .rkey = peer.value("rkey", 0u)};
    const auto run = [&] {
      end.post(request);
      const auto got =
          End::poll(end.send_cq, milliseconds(1500), [](const auto& all) { return !all.empty(); });
      if (!got.empty() && got.front().status == IBV_WC_SUCCESS) return true;
      if (problem.empty())
        problem = got.empty() ? "no answer" : ibv_wc_status_str(got.front().status);
      return false;
    };
    bool is_right = run();
    if (is_right) {
      request.opcode = IBV_WR_RDMA_READ;
      request.from = memory.address(32768);
      is_right = run();
      for (uint32_t i = 0; i < size && is_right; i++) {
        if (memory.at(32768)[i] != kMark) problem = "data came back changed", is_right = false;
      }
    }
    wire.say({{"again", !is_right}});
    if (!is_right) continue;
    const int passed = mtu_bytes(std::min<uint32_t>(to.mtu, device.port.active_mtu));
    wire.say({{"over", true}});
    if (!problem.empty())
      return failure(text("packets of %d bytes come through, and of %d do not (%s)", passed, mtu,
                          problem.c_str()));
    const std::string seen = text("packets of %d bytes come through, both ways", passed);
    return to.mtu != static_cast<uint32_t>(unused.port.active_mtu)
               ? warning(seen +
                         text("; one end's MTU is %d, the other's %d", mtu, mtu_bytes(to.mtu)))
               : ok(seen);
  }
  const std::string seen = "nothing comes through: " + problem;
  if (subject.is_one_host && subject.nic != subject.peer_nic)
    return warning(seen + "; between two NICs of one host that may be the kernel's routing");
  return failure(seen);
}

void answer_path(const Subject& subject, Wire& wire) {
  for (;;) {
    Device device(subject.nic);
    const auto asked = wire.hear();
    if (asked.contains("over")) return;
    Memory memory(device, 65536);
    End end(device);
    const Address own = end.address();
    end.connect(Address::from_json(asked.at("address")));
    wire.say({{"address", own.to_json()}, {"memory", memory.address()}, {"rkey", memory.rkey()}});
    wire.hear();
    wire.say({{"ready", true}});
    wire.hear();
  }
}

// TCP between each address here and each address there, at the layer's port.
Outcome ask_control(const Subject& subject, Wire& wire) {
  const auto there = wire.hear();
  const auto addresses = there.value("addresses", std::vector<std::string>{});
  const auto port = there.value("port", uint16_t{0});
  if (port != ports().front())
    return failure(text("SHIFT_PORT is %u here and %u there", ports().front(), port));
  double most_ms = 0;
  int count = 0;
  for (const std::string& from : addresses_of(subject)) {
    for (const std::string& to : addresses) {
      double took_ms = 0;
      const int error = reach(ip_of(from), ip_of(to), port, took_ms);
      if (error != 0) {
        return failure(text("no TCP connection from %s to %s, port %u: %s", from.c_str(),
                            to.c_str(), port, std::strerror(error)));
      }
      most_ms = std::max(most_ms, took_ms);
      count++;
    }
  }
  if (count == 0)
    return warning("no NIC has an IPv4 address, so peers are looked for by broadcast");
  if (most_ms > static_cast<double>(kPresence.count()))
    return warning(
        text("a TCP connection takes %.0f ms; after %lld ms the layer takes a host for "
             "one without it",
             most_ms, static_cast<long long>(kPresence.count())));
  return ok(text("TCP port %u is reached over all %d pairs of addresses, in %.1f ms at most", port,
                 count, most_ms));
}

void answer_control(const Subject& subject, Wire& wire) {
  std::vector<UniqueFd> listeners;
  const auto addresses = addresses_of(subject);
  // An address whose port is taken already is reached all the same, or not, by who has it.
  for (const std::string& ip : addresses)
    listeners.push_back(net::tcp_listen(ip_of(ip), ports().front()));
  wire.say({{"addresses", addresses}, {"port", ports().front()}});
  try {
    wire.hear(std::chrono::seconds(20));  // the connection's end
  } catch (const Trouble&) {
  }
}

}  // namespace shift::verify

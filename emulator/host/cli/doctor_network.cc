// Checks of addresses and ports.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fabric/net.h"
#include "host/cli/doctor.h"

namespace cxemu {
namespace {

constexpr uint16_t kRocePort = 4791;

sockaddr_in address_make(uint32_t net, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(127u << 24 | net << 16 | 1 << 8 | 1);
  return address;
}

Finding addresses_check() {
  uint32_t taken = 0;
  for (uint32_t net = kNetMin; net <= kNetMax; ++net) {
    const std::string owner = net_claim_owner("/tmp", net);
    if (!owner.empty() && access(owner.c_str(), F_OK) == 0) ++taken;
  }
  const uint32_t all = kNetMax - kNetMin + 1;
  const std::string detail = std::to_string(all - taken) + " of " + std::to_string(all) +
                             " address blocks free (127.N.0.0/16)";
  if (access("/tmp", W_OK) != 0)
    return {"address-blocks", Health::kFail, "/tmp cannot be written",
            "claims on address blocks are files there"};
  if (taken < all) return {"address-blocks", Health::kOk, detail, ""};
  return {"address-blocks", Health::kWarn, detail,
          "'cxemu clean --all' frees them; idle ones go by themselves after a minute"};
}

// Tests a connection between two addresses of 127/8 that no interface is configured with.
Finding loopback_check() {
  const sockaddr_in wanted = address_make(kNetMax + 1, 0);
  sockaddr_in bound{};
  socklen_t length = sizeof bound;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool good =
      bind(listener, reinterpret_cast<const sockaddr*>(&wanted), sizeof wanted) == 0 &&
      listen(listener, 1) == 0 &&
      getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &length) == 0 &&
      connect(client, reinterpret_cast<const sockaddr*>(&bound), sizeof bound) == 0;
  const int problem = errno;
  for (const int fd : {listener, client})
    if (fd >= 0) close(fd);
  if (good) return {"loopback", Health::kOk, "TCP works between all addresses of 127.0.0.0/8", ""};
  return {"loopback", Health::kFail, std::string("127.0.0.0/8: ") + strerror(problem),
          "bring up the interface lo: 'ip link set lo up'"};
}

Finding unix_sockets_check() {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = "cxemu-doctor-" + std::to_string(getpid());
  memcpy(name.sun_path + 1, text.data(), text.size());
  const bool good = fd >= 0 &&
                    bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0 &&
                    listen(fd, 1) == 0;
  const int problem = errno;
  if (fd >= 0) close(fd);
  if (good) return {"unix-sockets", Health::kOk, "packets can travel by abstract unix sockets", ""};
  return {"unix-sockets", Health::kFail, std::string("unix sockets: ") + strerror(problem),
          "the sandbox forbids them; try --wire udp"};
}

Finding roce_port_check() {
  const sockaddr_in wanted = address_make(kNetMax + 1, kRocePort);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool good =
      fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&wanted), sizeof wanted) == 0;
  const int problem = errno;
  if (fd >= 0) close(fd);
  if (good) return {"udp-4791", Health::kOk, "the RoCE port is free (--wire udp)", ""};
  return {"udp-4791", Health::kWarn, std::string("UDP port 4791: ") + strerror(problem),
          "another program has it on all addresses: --wire udp does not work, --wire unix does"};
}

}  // namespace

std::vector<Finding> network_findings() {
  return {addresses_check(), loopback_check(), unix_sockets_check(), roce_port_check()};
}

}  // namespace cxemu

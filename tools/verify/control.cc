// Checks of what two processes with the layer find each other by: ports and TCP between addresses.
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

// A socket for datagrams at this address; with port 0, at any port.
UniqueFd udp_at(uint32_t ip_be, uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  // Programs with the layer may have it, too.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = ip_be;
  at.sin_port = htons(port);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0) fd.reset();
  return fd;
}

// Whether a datagram comes back.
bool datagram_passes(uint32_t from_be, uint32_t to_be, uint16_t port) {
  const UniqueFd fd = udp_at(from_be, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = to_be;
  to.sin_port = htons(port);
  for (int tries = 0; tries < 3; tries++) {  // a network may lose one
    const char byte = 1;
    sendto(fd.get(), &byte, 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    pollfd one{fd.get(), POLLIN, 0};
    if (::poll(&one, 1, 300) == 1) return true;
  }
  return false;
}

}  // namespace

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
  if (!datagram_passes(ip_of(addresses_of(subject).front()), ip_of(addresses.front()), port)) {
    Outcome out = warning(text("no UDP to port %u, and back from it", port));
    out.means =
        "Programs that use GIDs without an IPv4 address, such as index 0, do not find their "
        "peers and are not protected. Others need no UDP.";
    return out;
  }
  return ok(
      text("TCP port %u is reached over all %d pairs of addresses, in %.1f ms at most, and UDP, "
           "too",
           port, count, most_ms));
}

// Gives datagrams back until the other end is content.
void answer_control(const Subject& subject, Wire& wire) {
  std::vector<UniqueFd> listeners;
  const auto addresses = addresses_of(subject);
  // An address whose port is taken already is reached all the same, or not, by who has it.
  for (const std::string& ip : addresses)
    listeners.push_back(net::tcp_listen(ip_of(ip), ports().front()));
  const UniqueFd udp = udp_at(addresses.empty() ? 0 : ip_of(addresses.front()), ports().front());
  wire.say({{"addresses", addresses}, {"port", ports().front()}});
  for (;;) {
    pollfd both[] = {{wire.fd(), POLLIN, 0}, {udp.get(), POLLIN, 0}};
    if (::poll(both, 2, 20'000) <= 0 || both[0].revents != 0) return;
    sockaddr_in from{};
    socklen_t size = sizeof from;
    char byte = 0;
    if (recvfrom(udp.get(), &byte, 1, 0, reinterpret_cast<sockaddr*>(&from), &size) == 1)
      sendto(udp.get(), &byte, 1, 0, reinterpret_cast<const sockaddr*>(&from), size);
  }
}

}  // namespace shift::verify

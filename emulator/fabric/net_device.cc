#include "fabric/net_device.h"

#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace cxemu {
namespace {

// System calls past the C library's functions, which the emulator itself stands in for.
class Query {
 public:
  Query() : fd_(syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  ~Query() {
    if (fd_ >= 0) syscall(SYS_close, fd_);
  }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  bool ask(unsigned long what, void* about) const {
    return fd_ >= 0 && syscall(SYS_ioctl, fd_, what, about) == 0;
  }

 private:
  const long fd_;
};

}  // namespace

NetDevice net_device_of(uint32_t ipv4_be) {
  NetDevice found;
  const Query kernel;
  ifconf all{};
  if (!kernel.ask(SIOCGIFCONF, &all)) return found;  // how much room they take
  std::vector<ifreq> entries(static_cast<size_t>(all.ifc_len) / sizeof(ifreq) + 4);
  all.ifc_len = static_cast<int>(entries.size() * sizeof(ifreq));
  all.ifc_req = entries.data();
  if (!kernel.ask(SIOCGIFCONF, &all)) return found;
  entries.resize(static_cast<size_t>(all.ifc_len) / sizeof(ifreq));
  const auto has_address = [ipv4_be](const ifreq& entry) {
    sockaddr_in address;
    memcpy(&address, &entry.ifr_addr, sizeof address);
    return address.sin_addr.s_addr == ipv4_be;
  };
  const auto entry = std::ranges::find_if(entries, has_address);
  ifreq asked{};
  if (entry != entries.end()) {
    memcpy(found.name, entry->ifr_name, sizeof found.name);
    // An address of its own may have a label, as in eth0:1.
    if (char* label = strchr(found.name, ':')) *label = '\0';
  }
  memcpy(asked.ifr_name, found.name, sizeof asked.ifr_name);
  if (kernel.ask(SIOCGIFINDEX, &asked)) found.index = static_cast<uint32_t>(asked.ifr_ifindex);
  return found;
}

}  // namespace cxemu

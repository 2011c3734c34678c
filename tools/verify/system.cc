// Checks of the kernel and of libraries that the layer opens at run time.
#include <dlfcn.h>
#include <linux/membarrier.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "nics.h"
#include "topics.h"

namespace shift::verify {
namespace {

int membarrier(int command) {
  return static_cast<int>(syscall(SYS_membarrier, command, 0, 0));
}

// As the kernel says in this network namespace; a device of another one is not watched, and counts
// as good.
bool has_carrier(const std::string& device) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  device.copy(request.ifr_name, sizeof request.ifr_name - 1);
  const bool is_known = ioctl(fd, SIOCGIFFLAGS, &request) == 0;
  close(fd);
  constexpr int kGood = IFF_UP | IFF_RUNNING;
  return !is_known || (request.ifr_flags & kGood) == kGood;
}

}  // namespace

Outcome check_membarrier(const Subject&) {
  const int known = membarrier(MEMBARRIER_CMD_QUERY);
  if (known < 0) return warning(std::string("membarrier(2): ") + std::strerror(errno));
  if ((known & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
    return warning("membarrier(2) of this kernel knows no private expedited barrier");
  if (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0 ||
      membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
    return warning(std::string("membarrier(2), private expedited: ") + std::strerror(errno));
  }
  return ok("membarrier(2) has private expedited barriers");
}

Outcome check_link_watch(const Subject& subject) {
  void* const library = dlopen("libnl-3.so.200", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return warning("libnl-3.so.200 is not installed, or does not load");
  if (dlsym(library, "nl_socket_modify_cb") == nullptr) return warning("libnl-3 lacks functions");
  // Which network devices hold the NIC's addresses, and whether they carry anything.
  std::string seen;
  for (const std::string& nic : subject.nics) {
    for (const std::string& device : network_devices(nic)) {
      if (!has_carrier(device)) {
        return failure(text("%s is down or has no carrier, so the layer does not use %s",
                            device.c_str(), nic.c_str()));
      }
      seen += (seen.empty() ? "" : ", ") + nic + " on " + device;
    }
  }
  return ok("libnl-3 tells of carriers and addresses: " +
            (seen.empty() ? "the NICs have no network devices here" : seen));
}

}  // namespace shift::verify

// Checks of the kernel and of libraries that the layer opens at run time.
#include <dlfcn.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "nics.h"
#include "topics.h"

namespace shift::verify {
namespace {

int membarrier(int command) {
  return static_cast<int>(syscall(SYS_membarrier, command, 0, 0));
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
      std::ifstream file("/sys/class/net/" + device + "/carrier");
      int carrier = 1;  // a device that does not say is not watched for it
      file >> carrier;
      if (!file.fail() && carrier == 0)
        return failure(
            text("%s has no carrier, so the layer does not use %s", device.c_str(), nic.c_str()));
      seen += (seen.empty() ? "" : ", ") + nic + " on " + device;
    }
  }
  return ok("libnl-3 tells of carriers and addresses: " +
            (seen.empty() ? "the NICs have no network devices here" : seen));
}

}  // namespace shift::verify

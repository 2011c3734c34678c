// Removes fabrics that were left behind.
#include "fabric/reclaim.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fabric/fabric.h"
#include "fabric/net.h"

namespace cxemu {
namespace {

bool idle_file(const std::string& path, long idle_seconds) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
         st.st_mtime + idle_seconds <= time(nullptr);
}

}  // namespace

int idle_fabrics_remove(const std::string& claims_dir, long idle_seconds) {
  int removed = 0;
  for (uint32_t net = kNetMin; net <= kNetMax; ++net) {
    const std::string path = net_claim_owner(claims_dir, net);
    if (path.empty() || !idle_file(path, idle_seconds)) continue;
    std::string ignored;
    const Fabric fabric = Fabric::open(path, &ignored);
    if (fabric && fabric.process_count(-1) == 0 && unlink(path.c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace cxemu

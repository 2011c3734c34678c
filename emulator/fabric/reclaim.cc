// Removes fabrics that were left behind.
#include "fabric/reclaim.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "fabric/fabric.h"
#include "fabric/net.h"

namespace cxemu {
namespace {

// A file may have been changed later than time() says: file systems may stamp with a finer clock
// than time()'s, which lags by up to a tick and is then a second behind. Such a file has been idle
// for 0 s.
bool idle_file(const std::string& path, long idle_seconds) {
  struct stat st;
  if (lstat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) return false;
  return std::max<long>(0, time(nullptr) - st.st_mtime) >= idle_seconds;
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

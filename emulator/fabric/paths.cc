// Paths of fabrics. Names are checked before they become part of a path.
#include "fabric/paths.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace cxemu {
namespace {

bool dir_is_private(const std::string& dir, std::string* error) {
  struct stat st;
  if (lstat(dir.c_str(), &st) != 0) {
    *error = dir + ": " + strerror(errno);
    return false;
  }
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
    *error = dir + ": must be a folder of this user with mode 0700";
    return false;
  }
  return true;
}

// A fabric is a mapped file that is written all the time, plus a few hundred small files; on a disk
// they would keep the disk busy. The check uses the size of the file system, not its free space,
// because all commands must get the same answer; containers often have 64 MiB.
bool is_roomy_memory(const char* dir) {
  constexpr uint64_t kRoomy = 1ull << 30;
  struct statfs fs;
  if (statfs(dir, &fs) != 0 || access(dir, W_OK | X_OK) != 0) return false;
  return fs.f_type == TMPFS_MAGIC &&
         uint64_t{fs.f_blocks} * static_cast<uint64_t>(fs.f_bsize) >= kRoomy;
}

}  // namespace

bool name_valid(const std::string& name) {
  return !name.empty() && name.size() <= 24 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

std::string fabrics_dir() {
  const char* base = getenv("XDG_RUNTIME_DIR");
  if (base == nullptr || base[0] != '/') base = is_roomy_memory("/dev/shm") ? "/dev/shm" : "/tmp";
  return std::string(base) + "/cxemu-" + std::to_string(geteuid());
}

std::string fabric_dir(const std::string& fabric) {
  return fabrics_dir() + "/" + fabric;
}

std::string fabric_file(const std::string& fabric) {
  return fabric_dir(fabric) + "/fabric";
}

std::string host_sysfs_dir(const std::string& fabric_folder, const std::string& host) {
  return fabric_folder + "/sys-" + host;
}

bool private_dir_make(const std::string& dir, std::string* error) {
  if (mkdir(dir.c_str(), 0700) == 0) return true;
  if (errno == EEXIST) return dir_is_private(dir, error);
  if (errno != ENOENT) {
    *error = dir + ": " + strerror(errno);
    return false;
  }
  const size_t slash = dir.rfind('/');
  if (slash == std::string::npos || slash == 0) {
    *error = dir + ": " + strerror(errno);
    return false;
  }
  if (!private_dir_make(dir.substr(0, slash), error)) return false;
  if (mkdir(dir.c_str(), 0700) == 0) return true;
  if (errno == EEXIST) return dir_is_private(dir, error);
  *error = dir + ": " + strerror(errno);
  return false;
}

}  // namespace cxemu

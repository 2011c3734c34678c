// Claims on address blocks. The claim file is written completely and then linked into place, so
// that no process ever reads a half-written one.
#include "fabric/net.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace cxemu {
namespace {

std::string claim_path(const std::string& dir, uint32_t net) {
  return dir + "/.cxemu-net-" + std::to_string(net);
}

// Returns an empty string when the claim cannot be read.
std::string claim_read(int fd) {
  char text[4096];
  const ssize_t length = pread(fd, text, sizeof text, 0);
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : std::string();
}

// Removes the claim if its fabric is known to be gone; a claim that cannot be judged (another
// user's folder) stays. The claim is locked and compared by inode: otherwise, of two processes that
// find the same stale claim, the slower one would remove the new claim of the faster one.
bool claim_remove_stale(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno == ENOENT;
  bool removed = false;
  struct stat opened, current, owner_file;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0 &&
      lstat(path.c_str(), &current) == 0 && opened.st_ino == current.st_ino) {
    const std::string owner = claim_read(fd);
    if (!owner.empty() && stat(owner.c_str(), &owner_file) != 0 && errno == ENOENT)
      removed = unlink(path.c_str()) == 0;
  }
  close(fd);
  return removed;
}

uint32_t first_candidate(const std::string& fabric_path) {
  uint32_t hash = 2166136261u;  // FNV-1a: two users rarely get the same number
  for (const char c : fabric_path) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash % (kNetMax - kNetMin + 1);
}

}  // namespace

uint32_t net_claim(const std::string& claims_dir, const std::string& fabric_path,
                   std::string* error) {
  std::string draft = claims_dir + "/.cxemu-net-draft-XXXXXX";
  const int fd = mkstemp(draft.data());
  if (fd < 0) {
    *error = draft + ": " + strerror(errno);
    return 0;
  }
  const bool written =
      write(fd, fabric_path.data(), fabric_path.size()) == ssize_t(fabric_path.size()) &&
      fchmod(fd, 0644) == 0;
  close(fd);
  uint32_t found = 0;
  const uint32_t count = kNetMax - kNetMin + 1;
  const uint32_t first = first_candidate(fabric_path);
  for (uint32_t i = 0; written && found == 0 && i < count; ++i) {
    const uint32_t net = kNetMin + (first + i) % count;
    const std::string path = claim_path(claims_dir, net);
    if (link(draft.c_str(), path.c_str()) == 0) {
      found = net;
    } else if (claim_remove_stale(path) && link(draft.c_str(), path.c_str()) == 0) {
      found = net;
    }
  }
  unlink(draft.c_str());
  if (found == 0) *error = claims_dir + ": no free address block, see 'cxemu clean'";
  return found;
}

std::string net_claim_owner(const std::string& claims_dir, uint32_t net) {
  const int fd = open(claim_path(claims_dir, net).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return {};
  const std::string owner = claim_read(fd);
  close(fd);
  return owner;
}

void net_release(const std::string& claims_dir, uint32_t net, const std::string& fabric_path) {
  if (net_claim_owner(claims_dir, net) == fabric_path) unlink(claim_path(claims_dir, net).c_str());
}

}  // namespace cxemu

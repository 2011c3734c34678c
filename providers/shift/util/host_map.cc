#include "util/host_map.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "util/trim.h"
#include "util/unique_fd.h"

namespace shift {
namespace {

HostMap::RawGid gid_of_ipv4(uint32_t ip_be) {
  HostMap::RawGid gid{};
  gid[10] = gid[11] = 0xff;
  std::memcpy(&gid[12], &ip_be, sizeof ip_be);
  return gid;
}

// Takes the next word off `line`.
std::string next_word(std::string_view& line) {
  line = trim(line);
  const size_t end = std::min(line.find_first_of(" \t"), line.size());
  std::string word(line.substr(0, end));
  line.remove_prefix(end);
  return word;
}

// What the owner and the kind of the open file have against it; null: nothing.
const char* file_problem(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return "it is not a regular file";
  if (status.st_uid != geteuid() && status.st_uid != 0)
    return "it belongs to another user, who could send this process's connections elsewhere";
  if ((status.st_mode & 022) != 0)
    return "others than its owner may write to it, and could send connections elsewhere; run chmod "
           "go-w on it";
  if (status.st_size > static_cast<off_t>(HostMap::kFileMax)) return "it is larger than 4 MiB";
  return nullptr;
}

// Reads the file up to the bound. Returns why it cannot be used; empty: it was read.
std::string text_read(const std::string& path, std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0)
    return std::string(std::strerror(errno)) + "; give a file that this user may read";
  if (const char* why = file_problem(status)) return why;
  text.resize(HostMap::kFileMax);
  size_t used = 0;
  while (used < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::strerror(errno);
    if (n == 0) break;
    used += static_cast<size_t>(n);
  }
  text.resize(used);
  return {};
}

}  // namespace

bool HostMap::parse(std::string_view text, std::string& why) {
  for (int number = 1; !text.empty(); number++) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    line = trim(line.substr(0, line.find('#')));
    std::vector<uint32_t> addresses;
    std::vector<RawGid> gids;
    const std::string where = "line " + std::to_string(number);
    while (!line.empty()) {
      const std::string word = next_word(line);
      uint32_t ip_be = 0;
      RawGid gid{};
      if (inet_pton(AF_INET, word.c_str(), &ip_be) == 1) {
        addresses.push_back(ip_be);
        gid = gid_of_ipv4(ip_be);
      } else if (inet_pton(AF_INET6, word.c_str(), gid.data()) != 1) {
        return why = where + " has a word that is neither an IPv4 address nor a GID", false;
      }
      if (gids.size() == kOnLineMax) return why = where + " has more than 32 words", false;
      gids.push_back(gid);
      line = trim(line);
    }
    for (const RawGid& gid : gids) {
      if (!host_of_.emplace(gid, hosts_.size()).second)
        return why = where + " names an address or a GID that stands there before", false;
    }
    if (!gids.empty()) hosts_.push_back(std::move(addresses));
  }
  return true;
}

HostMap HostMap::read(const std::string& path, std::string& why) {
  std::string text;
  HostMap map;
  why = text_read(path, text);
  if (why.empty() && map.parse(text, why)) return map;
  return {};
}

std::vector<uint32_t> HostMap::addresses_of(const RawGid& gid) const {
  const auto found = host_of_.find(gid);
  return found == host_of_.end() ? std::vector<uint32_t>{} : hosts_[found->second];
}

}  // namespace shift

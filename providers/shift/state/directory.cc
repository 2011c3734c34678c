#include "state/directory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "util/trim.h"

namespace shift::state {

namespace {

// What speaks against believing what is in the folder, or null.
const char* folder_problem(const struct stat& status, uid_t uid) {
  if (!S_ISDIR(status.st_mode)) return "it is no folder";
  if (status.st_uid != uid) return "it belongs to another user";
  if ((status.st_mode & 077) != 0) return "others may enter it";
  return nullptr;
}

void names_read(int fd, std::set<std::string>& names) {
  std::string text(kDrainedMax, '\0');
  size_t used = 0;
  while (used < text.size()) {
    const ssize_t n = ::read(fd, text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    used += static_cast<size_t>(n);
  }
  std::string_view left(text.data(), used);
  while (!left.empty()) {
    const size_t end = left.find('\n');
    const std::string_view line = trim(left.substr(0, end));
    left = end == std::string_view::npos ? std::string_view{} : left.substr(end + 1);
    const bool is_name = std::ranges::all_of(line, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
    });
    if (!line.empty() && is_name) names.emplace(line);
  }
}

}  // namespace

std::string user_directory(const std::string& base, uid_t uid) {
  return base + "/shift-" + std::to_string(uid);
}

UniqueFd directory_open(const std::string& base, uid_t uid, bool make, std::string& problem) {
  const std::string path = user_directory(base, uid);
  if (make && ::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    problem = path + ": " + std::strerror(errno);
    return {};
  }
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    problem = path + ": " + std::strerror(errno);
    return {};
  }
  if (const char* why = folder_problem(status, uid)) {
    problem = path + ": " + why;
    return {};
  }
  return fd;
}

const char* file_problem(const struct stat& status, const std::set<uid_t>& owners) {
  if (!S_ISREG(status.st_mode)) return "it is no regular file";
  if (!owners.contains(status.st_uid)) return "it belongs to another user";
  if (status.st_nlink > 1) return "it has a second name (a hard link)";
  if ((status.st_mode & 022) != 0) return "others may write to it";
  return nullptr;
}

bool write_is_allowed(size_t end) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         end <= limit.rlim_cur;
}

UniqueFd file_open(int directory, const std::string& name, const std::set<uid_t>& owners,
                   std::string& problem) {
  problem.clear();
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  UniqueFd fd(::openat(directory, name.c_str(), kFlags));
  if (!fd) {
    if (errno != ENOENT) problem = name + ": " + std::strerror(errno);
    return {};
  }
  struct stat status {};
  const char* why =
      ::fstat(fd.get(), &status) != 0 ? std::strerror(errno) : file_problem(status, owners);
  if (why == nullptr) return fd;
  problem = name + ": " + why;
  return {};
}

std::set<std::string> drained_read(const std::string& base, uid_t uid, std::string& problem) {
  std::set<std::string> names;
  problem.clear();
  std::string why;
  if (const auto file = file_open(AT_FDCWD, base + "/" + kHostDrainedName, {0}, why))
    names_read(file.get(), names);
  problem = why;
  const std::string own = user_directory(base, uid);
  struct stat status {};
  if (::lstat(own.c_str(), &status) != 0 || folder_problem(status, uid) != nullptr) return names;
  if (const auto file = file_open(AT_FDCWD, own + "/" + kDrainedName, {0, uid}, why))
    names_read(file.get(), names);
  if (problem.empty()) problem = why;
  return names;
}

}  // namespace shift::state

#include "state/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "state/directory.h"
#include "util/unique_fd.h"

namespace shift::state {

FileVersion small_file_read(const std::string& base, uid_t uid, const std::string& name, size_t max,
                            const FileVersion& known, std::string& content) {
  std::string problem;
  const UniqueFd folder = directory_open(base, uid, false, problem);
  const UniqueFd file = folder ? file_open(folder.get(), name, {uid}, problem) : UniqueFd();
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) {
    content.clear();
    return {};
  }
  const FileVersion version{
      status.st_dev, status.st_ino,
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
  if (version == known) return version;
  content.assign(std::min(max, static_cast<size_t>(status.st_size)), '\0');
  size_t used = 0;
  while (used < content.size()) {
    const ssize_t n = ::read(file.get(), content.data() + used, content.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    used += static_cast<size_t>(n);
  }
  content.resize(used);
  return version;
}

bool small_file_write(const std::string& base, uid_t uid, const std::string& name,
                      std::string_view content) {
  std::string problem;
  const UniqueFd folder = directory_open(base, uid, true, problem);
  if (!folder) return false;
  const std::string draft = name + "." + std::to_string(getpid());
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const UniqueFd file(::openat(folder.get(), draft.c_str(), kFlags, 0600));
  if (!file) return false;
  bool is_written = true;
  while (is_written && !content.empty()) {
    const ssize_t n = ::write(file.get(), content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n > 0) content.remove_prefix(static_cast<size_t>(n));
    is_written = n > 0;
  }
  if (is_written && ::renameat(folder.get(), draft.c_str(), folder.get(), name.c_str()) == 0)
    return true;
  (void)::unlinkat(folder.get(), draft.c_str(), 0);
  return false;
}

}  // namespace shift::state

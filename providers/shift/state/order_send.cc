#include "state/order_send.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#include "state/directory.h"
#include "util/unique_fd.h"

namespace shift::state {

// By the folder's descriptor, since paths of sockets are short, and the folder is known to be good.
int order_send(int folder, const char* name, uid_t user, int fd, const std::string& order) {
  struct stat status {};
  if (::fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return errno;
  if (!S_ISSOCK(status.st_mode) || status.st_uid != user) return EPERM;
  const std::string path = "/proc/self/fd/" + std::to_string(folder) + "/" + name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  const ssize_t sent = ::sendto(fd, order.data(), order.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                                reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return sent >= 0 ? 0 : errno;
}

int order_all(const std::string& base, const std::string& own, const std::string& order) noexcept
    try {
  std::string problem;
  const UniqueFd folder = directory_open(base, ::geteuid(), false, problem);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!folder || !fd) return 0;
  DIR* const entries = ::opendir(("/proc/self/fd/" + std::to_string(folder.get())).c_str());
  if (entries == nullptr) return 0;
  const std::string_view own_name = std::string_view(own).substr(own.rfind('/') + 1);
  int sent = 0;
  size_t looked_at = 0;
  while (const dirent* entry = ::readdir(entries)) {
    if (++looked_at > kFilesMax) break;
    const std::string_view name = entry->d_name;
    if (name.ends_with(kSocketEnd) && name != own_name)
      sent += order_send(folder.get(), entry->d_name, ::geteuid(), fd.get(), order) == 0;
  }
  ::closedir(entries);
  return sent;
} catch (const std::bad_alloc&) {
  return 0;
}

}  // namespace shift::state

#include "orders.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "state/directory.h"

namespace shift::ctl {

namespace {

constexpr int kTries = 20;  // 1 s in all: a process that is stopped does not empty its socket
constexpr std::chrono::milliseconds kPause{50};

}  // namespace

std::string order_send(const Place& place, const Process& process, const std::string& order) {
  std::string why;
  const UniqueFd folder = state::directory_open(place.base, process.uid, false, why);
  if (!folder) return why;
  const std::string name = process.name + state::kSocketEnd;
  struct stat status {};
  if (::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return name + ": " + std::strerror(errno);
  if (!S_ISSOCK(status.st_mode) || status.st_uid != process.uid)
    return name + ": it is no socket of its user";
  // By the folder's descriptor, since paths of sockets are short, and the folder is known to be
  // good.
  const std::string path = "/proc/self/fd/" + std::to_string(folder.get()) + "/" + name;
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return name + ": its name is too long";
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return std::strerror(errno);
  for (int i = 0; i < kTries; i++) {
    if (::sendto(fd.get(), order.data(), order.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address), sizeof address) >= 0)
      return "";
    if (errno != EAGAIN && errno != EINTR) return name + ": " + std::strerror(errno);
    std::this_thread::sleep_for(kPause);
  }
  return name + ": it takes no orders now; it may be stopped";
}

}  // namespace shift::ctl

#include "orders.h"

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "state/directory.h"
#include "state/order_send.h"

namespace shift::ctl {

namespace {

constexpr int kOrderTries = 20;  // 1 s in all: a process that is stopped does not empty its socket
constexpr std::chrono::milliseconds kOrderPause{50};

}  // namespace

std::string order_send(const Place& place, const Process& process, const std::string& order) {
  std::string why;
  const UniqueFd folder = state::directory_open(place.base, process.uid, false, why);
  if (!folder) return why;
  const std::string name = process.name + state::kSocketEnd;
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return std::strerror(errno);
  for (int i = 0; i < kOrderTries; i++) {
    switch (const int error =
                state::order_send(folder.get(), name.c_str(), process.uid, fd.get(), order)) {
      case 0:
        return "";
      case EPERM:
        return name + ": it is no socket of its user";
      case EAGAIN:
      case EINTR:
        std::this_thread::sleep_for(kOrderPause);
        break;
      default:
        return name + ": " + std::strerror(error);
    }
  }
  return name + ": it takes no orders now; it may be stopped";
}

}  // namespace shift::ctl

#include "state/order_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "state/orders.h"

namespace shift::state {

namespace {

// Reads "WORD 0x1f mlx5_0".
std::optional<Order> qp_order(std::string_view text, std::string_view word, Order::Kind kind) {
  if (!text.starts_with(word)) return std::nullopt;
  text.remove_prefix(word.size());
  if (!text.starts_with(" 0x")) return std::nullopt;
  text.remove_prefix(3);
  Order order{kind, 0, {}};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, order.qpn, 16);
  if (error != std::errc() || end == last || *end != ' ' || end + 1 == last) return std::nullopt;
  order.device.assign(end + 1, last);
  return order;
}

bool may_order(const msghdr& message) {
  for (const cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(part))) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(part), sizeof sender);
    return sender.uid == 0 || sender.uid == ::geteuid();
  }
  return false;
}

}  // namespace

std::optional<Order> order_parse(const char* text, size_t size) {
  const std::string_view order(text, size);
  if (order == kOrderLook) return Order{};
  constexpr std::string_view kSuspects = kOrderSuspect;
  if (order.size() > kSuspects.size() + 1 && order.starts_with(kSuspects) &&
      order[kSuspects.size()] == ' ') {
    return Order{Order::Kind::kSuspect, 0, std::string(order.substr(kSuspects.size() + 1))};
  }
  if (auto move = qp_order(order, kOrderMove, Order::Kind::kMove)) return move;
  return qp_order(order, kOrderHome, Order::Kind::kHome);
}

bool OrderSocket::open(const std::string& path, std::string& problem) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    problem = path + ": the name is too long for a socket";
    return false;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    problem = path + ": " + std::strerror(errno);
    return false;
  }
  fd_ = std::move(fd);
  return true;
}

std::optional<Order> OrderSocket::take(bool& is_empty) noexcept {
  char text[kOrderMax];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  iovec part{text, sizeof text};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  // Descriptors that came along would be closed by the kernel, since there is no room for them.
  const ssize_t n = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  is_empty = n < 0;
  if (n < 0 || (message.msg_flags & MSG_TRUNC) != 0 || !may_order(message)) return std::nullopt;
  return order_parse(text, static_cast<size_t>(n));
}

}  // namespace shift::state

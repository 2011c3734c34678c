#include "routes.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace shift::verify {
namespace {

struct Question {
  nlmsghdr head;
  rtmsg route;
  struct Address {
    rtattr head;
    uint32_t ip_be;
  } to, from;
};

Question question(uint32_t from_be, uint32_t to_be) {
  Question made{};
  made.head.nlmsg_len = sizeof made;
  made.head.nlmsg_type = RTM_GETROUTE;
  made.head.nlmsg_flags = NLM_F_REQUEST;
  made.route.rtm_family = AF_INET;
  made.route.rtm_dst_len = made.route.rtm_src_len = 32;
  made.to = {{sizeof made.to, RTA_DST}, to_be};
  made.from = {{sizeof made.from, RTA_SRC}, from_be};
  return made;
}

}  // namespace

std::string route_device(uint32_t from_be, uint32_t to_be) {
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return "";
  const Question asked = question(from_be, to_be);
  alignas(nlmsghdr) std::array<char, 8192> answer;
  ssize_t size = -1;
  if (send(fd, &asked, sizeof asked, 0) == sizeof asked)
    size = recv(fd, answer.data(), answer.size(), 0);
  close(fd);
  const auto* head = reinterpret_cast<const nlmsghdr*>(answer.data());
  if (size < 0 || !NLMSG_OK(head, static_cast<uint32_t>(size)) || head->nlmsg_type != RTM_NEWROUTE)
    return "";
  const auto* route = static_cast<const rtmsg*>(NLMSG_DATA(head));
  auto left = static_cast<int>(RTM_PAYLOAD(head));
  for (const rtattr* one = RTM_RTA(route); RTA_OK(one, left); one = RTA_NEXT(one, left)) {
    if (one->rta_type != RTA_OIF) continue;
    uint32_t index = 0;
    std::memcpy(&index, RTA_DATA(one), sizeof index);
    char name[IF_NAMESIZE] = "";
    return if_indextoname(index, name) != nullptr ? name : "";
  }
  return "";
}

}  // namespace shift::verify

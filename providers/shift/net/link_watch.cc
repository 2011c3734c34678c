#include "net/link_watch.h"

#include <dlfcn.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "util/fork.h"

namespace shift::net {
namespace {

// The functions of libnl-3 that are used here. All of them are nullptr until nl_load() has found
// the library.
#define SHIFT_NL_FUNCTIONS(F)    \
  F(nl_socket_alloc)             \
  F(nl_socket_free)              \
  F(nl_connect)                  \
  F(nl_socket_add_membership)    \
  F(nl_socket_disable_seq_check) \
  F(nl_socket_get_fd)            \
  F(nl_socket_modify_cb)         \
  F(nl_socket_set_nonblocking)   \
  F(nl_recvmsgs_default)         \
  F(nl_send_simple)              \
  F(nlmsg_get_src)               \
  F(nlmsg_hdr)                   \
  F(nlmsg_data)                  \
  F(nlmsg_datalen)

struct Nl {
#define SHIFT_NL_POINTER(name) decltype(&::name) name = nullptr;
  SHIFT_NL_FUNCTIONS(SHIFT_NL_POINTER)
#undef SHIFT_NL_POINTER
};

// The library is never closed, because the program or the stock verbs library may use it as well.
const char* nl_load(const char* library, Nl* nl) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return "libnl-3 is not installed";
#define SHIFT_NL_FIND(name)                                             \
  nl->name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name)); \
  if (nl->name == nullptr) return "the installed libnl-3 lacks " #name;
  SHIFT_NL_FUNCTIONS(SHIFT_NL_FIND)
#undef SHIFT_NL_FIND
  return nullptr;
}

Nl g_nl;  // loop only

constexpr unsigned kLowerUp = 1u << 16;  // IFF_LOWER_UP of linux/if.h, which quarrels with net/if.h
constexpr int kReadsMax = 64;            // in one turn of the loop

// The kernel's RDMA core decides likewise about the state of a RoCE port.
bool carries(unsigned flags) {
  return (flags & IFF_UP) != 0 && (flags & kLowerUp) != 0;
}

using Attributes = std::span<const std::byte>;

// The payload of the first attribute of that type; empty: there is none.
Attributes attribute(Attributes in, unsigned type) {
  while (in.size() >= sizeof(rtattr)) {
    rtattr header;
    std::memcpy(&header, in.data(), sizeof header);
    if (header.rta_len < sizeof header || header.rta_len > in.size()) break;
    if ((header.rta_type & NLA_TYPE_MASK) == type) {
      return in.subspan(sizeof header, header.rta_len - sizeof header);
    }
    in = in.subspan(std::min<size_t>(RTA_ALIGN(header.rta_len), in.size()));
  }
  return {};
}

// Of the attributes of a link; 0: it is no VLAN's device.
uint16_t vlan_in(Attributes link) {
  constexpr std::string_view kVlan = "vlan";
  const Attributes info = attribute(link, IFLA_LINKINFO);
  const Attributes kind = attribute(info, IFLA_INFO_KIND);
  if (kind.size() < kVlan.size() || std::memcmp(kind.data(), kVlan.data(), kVlan.size()) != 0)
    return 0;
  const Attributes id = attribute(attribute(info, IFLA_INFO_DATA), IFLA_VLAN_ID);
  uint16_t vlan = 0;
  if (id.size() >= sizeof vlan) std::memcpy(&vlan, id.data(), sizeof vlan);
  return vlan;
}

}  // namespace

LinkWatch::~LinkWatch() {
  if (socket_ == nullptr) return;
  const int fd = g_nl.nl_socket_get_fd(socket_);
  loop_.remove_fd(fd);
  fork_fd_remove(fd);
  g_nl.nl_socket_free(socket_);
}

const char* LinkWatch::start(const char* library) {
  if (const char* problem = nl_load(library, &g_nl)) return problem;
  nl_sock* made = g_nl.nl_socket_alloc();
  if (made == nullptr) return "no memory for a netlink socket";
  g_nl.nl_socket_disable_seq_check(made);  // the kernel's news carry no sequence numbers
  const bool ready =
      g_nl.nl_socket_modify_cb(made, NL_CB_VALID, NL_CB_CUSTOM, &LinkWatch::on_message, this) ==
          0 &&
      g_nl.nl_connect(made, NETLINK_ROUTE) == 0 && g_nl.nl_socket_set_nonblocking(made) == 0 &&
      g_nl.nl_socket_add_membership(made, RTNLGRP_LINK) == 0 &&
      g_nl.nl_socket_add_membership(made, RTNLGRP_IPV4_IFADDR) == 0 &&
      loop_.add_fd(g_nl.nl_socket_get_fd(made), EPOLLIN, [this](uint32_t) { readable(); });
  if (!ready) {
    g_nl.nl_socket_free(made);
    return "the netlink socket cannot be opened";
  }
  socket_ = made;
  fork_fd_add(g_nl.nl_socket_get_fd(made));  // libnl owns it
  ask_for_all();
  return nullptr;
}

void LinkWatch::ask_for_all() {
  rtgenmsg request{};
  request.rtgen_family = AF_UNSPEC;
  (void)g_nl.nl_send_simple(socket_, RTM_GETLINK, NLM_F_DUMP, &request, sizeof request);
}

int LinkWatch::on_message(nl_msg* message, void* self) noexcept {
  auto& watch = *static_cast<LinkWatch*>(self);
  try {
    watch.take(message);
  } catch (const std::bad_alloc&) {
    watch.lost_ = true;
  }
  return NL_OK;
}

void LinkWatch::take(nl_msg* message) {
  if (g_nl.nlmsg_get_src(message)->nl_pid != 0) return;  // it is not from the kernel
  const nlmsghdr* header = g_nl.nlmsg_hdr(message);
  const auto length = static_cast<size_t>(std::max(g_nl.nlmsg_datalen(header), 0));
  const void* data = g_nl.nlmsg_data(header);
  switch (header->nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK: {
      if (length < sizeof(ifinfomsg)) return;
      const auto* info = static_cast<const ifinfomsg*>(data);
      // A bridge reports its ports in messages of its own family. They are skipped, or else a
      // device that leaves a bridge would look deleted.
      if (info->ifi_family != AF_UNSPEC) return;
      const bool is_gone = header->nlmsg_type == RTM_DELLINK;
      const Kind state = carries(info->ifi_flags) ? Kind::kUp : Kind::kDown;
      news_.push_back({info->ifi_index, is_gone ? Kind::kGone : state});
      const auto* bytes = static_cast<const std::byte*>(data);
      const size_t begin = std::min<size_t>(NLMSG_ALIGN(sizeof *info), length);
      const uint16_t vlan = is_gone ? 0 : vlan_in({bytes + begin, length - begin});
      if (vlan != 0) {
        vlans_[info->ifi_index] = vlan;
      } else {
        vlans_.erase(info->ifi_index);
      }
      return;
    }
    case RTM_NEWADDR:
    case RTM_DELADDR: {
      if (length < sizeof(ifaddrmsg)) return;
      const auto* info = static_cast<const ifaddrmsg*>(data);
      news_.push_back({static_cast<int>(info->ifa_index), Kind::kAddress});
      return;
    }
    default:
      return;
  }
}

void LinkWatch::readable() {
  for (int reads = 0; reads < kReadsMax; reads++) {
    const int result = g_nl.nl_recvmsgs_default(socket_);
    if (result == -NLE_NOMEM) lost_ = true;         // more news than the socket holds
    if (result < 0 && result != -NLE_NOMEM) break;  // no more messages (NLE_AGAIN), or an error
  }
  const auto news = std::exchange(news_, {});
  for (const News& item : news) {
    switch (item.kind) {
      case Kind::kUp:
      case Kind::kDown:
        sink_.link_state(item.ifindex, item.kind == Kind::kUp);
        break;
      case Kind::kGone:
        sink_.link_gone(item.ifindex);
        break;
      case Kind::kAddress:
        sink_.address_changed(item.ifindex);
        break;
    }
  }
  if (std::exchange(lost_, false)) ask_for_all();
}

std::optional<uint32_t> LinkWatch::mask_of(int ifindex, uint32_t ip_be) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  std::optional<uint32_t> mask;
  for (const ifaddrs* entry = list; entry != nullptr && !mask; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    if (address->sin_addr.s_addr != ip_be ||
        static_cast<int>(if_nametoindex(entry->ifa_name)) != ifindex) {
      continue;
    }
    const auto* netmask = reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask);
    mask = netmask != nullptr ? netmask->sin_addr.s_addr : 0;
  }
  freeifaddrs(list);
  return mask;
}

uint16_t LinkWatch::vlan_of(int ifindex) {
  const auto found = vlans_.find(ifindex);
  return found != vlans_.end() ? found->second : uint16_t{0};
}

}  // namespace shift::net

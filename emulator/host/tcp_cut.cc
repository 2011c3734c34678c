// Black holes for sockets of faulted NICs.
#include "host/tcp_cut.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "fabric/fault.h"
#include "host/real.h"

namespace cxemu {
namespace {

Real<int(int, const sockaddr*, socklen_t)> g_bind("bind");

constexpr uint32_t kCuttingFaults = kLinkDown | kDead | kDropData | kDropAcks;

// The IPv4 address inside a socket address, which may also be IPv4-mapped; 0 if there is none.
in_addr_t ipv4_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr;
  if (address.ss_family != AF_INET6) return 0;
  const in6_addr& ip6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&ip6)) return 0;
  in_addr_t ipv4;
  memcpy(&ipv4, ip6.s6_addr + 12, sizeof ipv4);
  return ipv4;
}

// Whether the socket's own address is still unset.
bool address_unset(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& ip4 = reinterpret_cast<const sockaddr_in&>(address);
    return ip4.sin_addr.s_addr == INADDR_ANY && ip4.sin_port == 0;
  }
  const auto& ip6 = reinterpret_cast<const sockaddr_in6&>(address);
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&ip6.sin6_addr) &&
         ip6.sin6_port == 0;
}

void filter_attach(int fd) {
  sock_filter accept_nothing = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program = {1, &accept_nothing};
  (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

// Has no effect if there is no filter.
void filter_detach(int fd) {
  const int none = 0;
  (void)setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none);
}

class ErrnoKept {
 public:
  ~ErrnoKept() { errno = saved_; }

 private:
  const int saved_ = errno;
};

}  // namespace

FabricNic* TcpCut::nic_of(const sockaddr_storage& address) const {
  const in_addr_t ipv4 = ipv4_of(address);
  return ipv4 == 0 ? nullptr : fabric_->nic_by_address(ipv4);
}

bool TcpCut::faults_of(int fd, const FabricNic* peer, uint32_t* faults) const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  const FabricNic* own = nic_of(address);
  address = {};
  length = sizeof address;
  if (peer == nullptr && getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    peer = nic_of(address);
  *faults = 0;
  for (const FabricNic* nic : {own, peer})
    if (nic != nullptr) *faults |= faults_now(*nic);
  if (own != nullptr && peer != nullptr &&
      (rules_cut_peer(*own, peer->ipv4_be) || rules_cut_peer(*peer, own->ipv4_be)))
    *faults |= kDropData;
  return own != nullptr || peer != nullptr;
}

bool TcpCut::before_connect(int fd, const sockaddr* peer, socklen_t length) {
  if (peer == nullptr || length < sizeof(sa_family_t) || length > sizeof(sockaddr_storage) ||
      (peer->sa_family != AF_INET && peer->sa_family != AF_INET6) || fd < 0 || fd >= kFdMax)
    return false;
  ErrnoKept kept;
  sockaddr_storage address{};
  memcpy(&address, peer, length);
  const FabricNic* peer_nic = nic_of(address);
  if (peer_nic == nullptr) return fds_->get(fd) == FdKind::kSocket;
  bind_same_rail(fd, address, *peer_nic);
  std::lock_guard lock(mutex_);
  track(fd, {peer_nic, false});
  return true;
}

void TcpCut::bind_same_rail(int fd, const sockaddr_storage& peer, const FabricNic& peer_nic) const {
  if (static_cast<int>(peer_nic.host) == host_) return;
  const FabricNic* own = fabric_->nic(host_, static_cast<int>(peer_nic.index));
  if (own->used.load(std::memory_order_acquire) == 0) return;
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0 || !address_unset(local))
    return;
  const int on = 1;
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  if (peer.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(local).sin_addr.s_addr = own->ipv4_be;
  } else {
    in6_addr& ip6 = reinterpret_cast<sockaddr_in6&>(local).sin6_addr;
    ip6.s6_addr[10] = ip6.s6_addr[11] = 0xff;
    memcpy(ip6.s6_addr + 12, &own->ipv4_be, sizeof own->ipv4_be);
  }
  // If this fails, the system chooses the connection's way.
  (void)g_bind(fd, reinterpret_cast<const sockaddr*>(&local), length);
}

bool TcpCut::after_bind_or_accept(int fd) {
  if (fd < 0 || fd >= kFdMax) return false;
  ErrnoKept kept;
  uint32_t faults;
  if (!faults_of(fd, nullptr, &faults)) return false;
  std::lock_guard lock(mutex_);
  // An accepted socket inherits the filter of the listening socket, if that one is cut.
  track(fd, {nullptr, true});
  return true;
}

void TcpCut::closing(int fd) {
  std::lock_guard lock(mutex_);
  sockets_.erase(fd);
  fds_->set(fd, FdKind::kOther);
}

void TcpCut::refresh() {
  std::lock_guard lock(mutex_);
  for (auto it = sockets_.begin(); it != sockets_.end();) {
    const bool stays =
        fds_->get(it->first) == FdKind::kSocket && filter_update(it->first, &it->second);
    it = stays ? std::next(it) : sockets_.erase(it);
  }
}

void TcpCut::track(int fd, Tracked tracked) {
  if (const auto known = sockets_.find(fd); known != sockets_.end())
    tracked.cut |= known->second.cut;
  filter_update(fd, &tracked);
  fds_->set(fd, FdKind::kSocket);
  sockets_[fd] = tracked;
}

bool TcpCut::filter_update(int fd, Tracked* tracked) const {
  uint32_t faults;
  if (!faults_of(fd, tracked->peer, &faults)) return false;
  const bool cut = (faults & kCuttingFaults) != 0;
  if (cut)
    filter_attach(fd);
  else if (tracked->cut)  // otherwise a filter may be the application's own
    filter_detach(fd);
  tracked->cut = cut;
  return true;
}

}  // namespace cxemu

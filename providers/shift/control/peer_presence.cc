#include "control/peer_presence.h"

#include <exception>
#include <future>
#include <memory>

#include "util/config.h"
#include "util/uncancellable.h"

namespace shift::control {

namespace {

// This is longer than the question's own bound (GidResolver), so that only a busy machine reaches
// it.
constexpr std::chrono::milliseconds kAddressPatience(1000);

}  // namespace

PeerPresence::PeerPresence(net::Loop& control, const NicWatch& nics)
    : control_(control), nics_(nics), presence_(config().port) {}

std::optional<net::Presence::Addresses> PeerPresence::addresses_find(const group::Context* context,
                                                                     const wire::Gid& local,
                                                                     const wire::Gid& remote) {
  using Addresses = std::optional<net::Presence::Addresses>;
  if (context->members[group::kDefault].port_down || !config().rendezvous.tcp) return {};
  if (local.ipv4() && remote.ipv4()) return Addresses({*local.ipv4(), *remote.ipv4()});
  auto found = std::make_shared<std::promise<Addresses>>();
  auto future = found->get_future();
  // The QP may be gone when the task runs. The context is still there, because context_forget()
  // takes its turn on the control loop after this task.
  control_.call_soon([this, context, local, remote, found] {
    const auto local_ip = nics_.address_of(context, local).ipv4();
    if (!local_ip) return found->set_value({});
    net_->find_address(*local_ip, remote, [=](std::optional<uint32_t> ip) {
      found->set_value(ip ? Addresses({*local_ip, *ip}) : Addresses());
    });
  });
  if (future.wait_for(kAddressPatience) != std::future_status::ready) return {};
  return future.get();
}

// All pairs of addresses of this host's NICs that work and of the peer's host.
std::vector<net::Presence::Addresses> PeerPresence::more_find(const group::Context* context,
                                                              const wire::Gid& local,
                                                              const wire::Gid& remote) {
  using All = std::vector<net::Presence::Addresses>;
  auto found = std::make_shared<std::promise<All>>();
  auto future = found->get_future();
  auto tell = [this, context, local, remote, found] {
    constexpr size_t kMost = 16;
    All all;
    const auto add = [&](uint32_t own, uint32_t peer) {
      if (all.size() < kMost) all.push_back({own, peer});
    };
    const std::vector<uint32_t> locals = nics_.addresses_up(context);
    // Where no NIC's network leads to the peer's further address, the kernel chooses another.
    for (const uint32_t peer : net_->others(remote)) add(0, peer);
    for (const uint32_t peer : net_->others(remote)) {
      for (const uint32_t own : locals) add(own, peer);
    }
    for (const uint32_t own : locals)
      if (const auto peer = remote.ipv4(); peer && own != local.ipv4()) add(own, *peer);
    found->set_value(std::move(all));
  };
  control_.call_soon([this, remote, tell] {
    if (!net_->look_up(remote, [tell](net::Stored) { tell(); })) tell();
  });
  if (future.wait_for(kAddressPatience) != std::future_status::ready) return {};
  return future.get();
}

bool PeerPresence::at(const group::Context* context, const wire::Gid& local,
                      const wire::Gid& remote) noexcept try {
  const Uncancellable shield;
  return presence_.at(
      local, remote, [&] { return addresses_find(context, local, remote); },
      [&] { return more_find(context, local, remote); });
} catch (const std::exception&) {
  return false;  // no memory, or the control loop does not run
}

}  // namespace shift::control

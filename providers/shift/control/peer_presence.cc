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
  if (context->members[group::kDefault].port_down) return {};
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
  control_.call_soon([this, context, local, remote, found] {
    std::vector<uint32_t> remotes = net_->others(remote);
    if (const auto ip = remote.ipv4()) remotes.push_back(*ip);
    All all;
    for (const uint32_t own : nics_.addresses_up(context)) {
      for (const uint32_t peer : remotes)
        if (own != local.ipv4() || peer != remote.ipv4()) all.push_back({own, peer});
    }
    constexpr size_t kMost = 16;
    if (all.size() > kMost) all.resize(kMost);
    found->set_value(std::move(all));
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

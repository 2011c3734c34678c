// The NICs of every open context: whether their ports are up, the network devices on them, and the
// addresses that these hold. Tells what becomes of them; knows nothing of groups. Control loop
// only.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "control/nic_pairs.h"
#include "group/cause.h"
#include "group/group.h"
#include "group/port.h"
#include "net/link_watch.h"
#include "net/network.h"

namespace shift::control {

// What a watch tells of a context's NICs.
class NicSink {
 public:
  // The NIC carries nothing any more.
  virtual void nic_lost(group::Context* context, int member, group::Cause cause) = 0;
  // It may carry traffic again.
  virtual void nic_back(group::Context* context, int member) = 0;
  // An address of a NIC that stays is of no use any more: no QP can send from it.
  virtual void address_lost(group::Context* context, int member, const wire::Gid& address,
                            group::Cause cause) = 0;
  // The NIC's GID table has changed: these are not there any more, or not where they were.
  virtual void addresses_changed(group::Context* context, int member,
                                 const std::vector<wire::Gid>& gone) = 0;

 protected:
  ~NicSink() = default;
};

class NicWatch final : public net::LinkSink {
 public:
  NicWatch(net::Loop& loop, NicSink& sink) : loop_(loop), sink_(sink) {}
  // Before the first context.
  void network_set(net::PeerNetwork* network) { net_ = network; }
  // Without it the NICs' network devices are not looked at.
  void links_set(std::unique_ptr<net::HostLinks> links) { links_ = std::move(links); }

  void context_add(group::Context* context);
  void context_forget(const group::Context* context);

  // One bit for each member that can carry traffic. 0: the context is not watched.
  uint8_t up(const group::Context* context) const;
  bool is_up(const group::Context* context, int member) const {
    return (up(context) >> member & 1) != 0;
  }
  // The address by which the application's GID is reached over IP; all zeros when there is none.
  wire::Gid address_of(const group::Context* context, const wire::Gid& local) const;
  wire::Gid address_of(const group::Group& group) const {
    return address_of(group.context, group.life.ends.local.gid);
  }
  // By which a group's members are reached, each by one address; all zeros for those with none.
  std::vector<wire::Gid> addresses_of(const group::Group& group) const;

  // What a NIC's device said.
  void device_died(group::Context* context, int member);
  void port_down(group::Context* context, int member);
  void port_up(group::Context* context, int member);
  void gids_changed(group::Context* context, int member);

  // What the kernel says of network devices.
  void link_state(int ifindex, bool up) override;
  void link_gone(int ifindex) override;
  void address_changed(int ifindex) override;
  // Network devices that are kept in mind for having no carrier.
  size_t carrierless_count() const { return carrierless_.size(); }

 private:
  struct Nic {
    bool port_up = false;
    bool linkless = false;  // none of its network devices has a carrier
    // A network device that is not known, or not of our network namespace, has the number 0.
    std::vector<group::PortAddress> addresses;
    // GIDs that hold no address, and one address that each belongs to.
    std::vector<group::PortName> names;
  };
  struct Watched {
    group::Context* context;
    group::PerMember<Nic> nics;
  };

  Watched* find(const group::Context* context) const;
  static uint8_t up_of(const Watched& watched);
  void port_lost(group::Context* context, int member, group::Cause cause);
  std::vector<wire::Gid> addresses_read(Watched& watched, int member);
  bool has_carrier(const Nic& nic) const;
  void carrier_changed(Watched& watched, int member, int ifindex);
  void links_forget();

  net::Loop& loop_;
  NicSink& sink_;
  net::PeerNetwork* net_ = nullptr;
  std::unique_ptr<net::HostLinks> links_;
  std::vector<std::unique_ptr<Watched>> watched_;
  // Network devices, by number, and those of them that are deleted: their numbers do not come back,
  // so they are kept only while a member's address is theirs.
  std::set<int> carrierless_, gone_;
};

}  // namespace shift::control

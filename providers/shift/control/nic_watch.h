// Watches the NICs of every open context: whether their ports are up, the network devices on them,
// and the addresses that these hold. Tells its sink what becomes of the NICs, and does nothing to
// groups. Only the control loop uses this.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "control/address_choice.h"
#include "control/nic_pairs.h"
#include "group/cause.h"
#include "group/group.h"
#include "group/port.h"
#include "net/link_watch.h"
#include "net/network.h"

namespace shift::control {

// Hears what becomes of a context's NICs.
class NicSink {
 public:
  // The NIC carries nothing any more.
  virtual void nic_lost(group::Context* context, int member, group::Cause cause) = 0;
  // The NIC has not answered a command in time. Traffic that it carries may go on, but no new path
  // goes over it; nic_back() tells when it has answered.
  virtual void nic_late(group::Context* context, int member) = 0;
  // The NIC may carry traffic again.
  virtual void nic_back(group::Context* context, int member) = 0;
  // An address of a NIC that otherwise works is of no use any more: no QP can send from it.
  virtual void address_lost(group::Context* context, int member, const wire::Gid& address,
                            group::Cause cause) = 0;
  // The NIC's GID table has changed: the GIDs in `gone` are not there any more, or not where they
  // were.
  virtual void addresses_changed(group::Context* context, int member,
                                 const std::vector<wire::Gid>& gone) = 0;

 protected:
  ~NicSink() = default;
};

class NicWatch final : public net::LinkSink {
 public:
  NicWatch(net::Loop& loop, NicSink& sink) : loop_(loop), sink_(sink) {}
  // Must be called before the first context_add().
  void network_set(net::PeerNetwork* network) { net_ = network; }
  // Without this call, the NICs' network devices are not looked at.
  void links_set(std::unique_ptr<net::HostLinks> links) { links_ = std::move(links); }

  // `ports_up`: whether each member's port was up when the context was opened, as
  // group::ports_up() tells. (This loop asks no NIC.)
  void context_add(group::Context* context, const group::PerMember<bool>& ports_up);
  void context_forget(const group::Context* context);
  // Looks which NICs are late with a command. False: none has any command to do.
  bool commands_look();

  // One bit for each member whose NIC has not answered a command in time.
  uint8_t late(const group::Context* context) const;
  // One bit for each member that can carry traffic. 0 if the context is not watched.
  uint8_t up(const group::Context* context) const;
  bool is_up(const group::Context* context, int member) const {
    return (up(context) >> member & 1) != 0;
  }
  // The address by which the application's GID is reached over IP; all zeros if there is none.
  wire::Gid address_of(const group::Context* context, const wire::Gid& local) const;
  wire::Gid address_of(const group::Group& group) const {
    return address_of(group.context, group.life.ends.local.gid);
  }
  // The addresses by which a group's members are reached, one for each member; all zeros for a
  // member that has none.
  std::vector<wire::Gid> addresses_of(const group::Group& group) const;
  // One IPv4 address of each member that can carry traffic, in network byte order.
  std::vector<uint32_t> addresses_up(const group::Context* context) const;
  // A member's: that of the application's GID on the default, and elsewhere the one that fits it
  // best, or the address `peer` that the other end uses (all zeros: that is not known).
  wire::Gid address_of_member(const group::Group& group, int member,
                              const wire::Gid& peer = {}) const;

  // These handle what a NIC's device said.
  void device_died(group::Context* context, int member);
  void port_down(group::Context* context, int member);
  void port_up(group::Context* context, int member);
  void gids_changed(group::Context* context, int member);

  // These handle what the kernel says of network devices.
  void link_state(int ifindex, bool up) override;
  void link_gone(int ifindex) override;
  void address_changed(int ifindex) override;
  // How many network devices are kept in mind because they have no carrier.
  size_t carrierless_count() const { return carrierless_.size(); }

 private:
  struct Nic {
    bool port_up = false;
    bool linkless = false;  // none of its network devices has a carrier
    bool late = false;      // it has not answered a command in time
    // A network device that is not known, or not of this process's network namespace, has the
    // number 0 here.
    std::vector<group::PortAddress> addresses;
    // GIDs that hold no address, and one address that each belongs to.
    std::vector<group::PortName> names;
  };
  struct Watched {
    group::Context* context;
    group::PerMember<Nic> nics;
  };

  Watched* find(const group::Context* context) const;
  HostAddress host_address(const group::PortAddress& address) const;
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
  // Network devices without a carrier, by number, and those of them that are deleted. The kernel
  // gives the number of a deleted device to no other device, so it is kept only while a member's
  // address is on that device.
  std::set<int> carrierless_, gone_;
};

}  // namespace shift::control

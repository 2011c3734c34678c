// Hears from the kernel about the carriers and IPv4 addresses of the host's network devices. It
// uses libnl-3, which the stock libibverbs needs on most systems. It opens the library at run time,
// because the program must also start where the library is missing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "net/loop.h"

struct nl_sock;
struct nl_msg;

namespace shift::net {

// Takes the news of devices and addresses. LinkWatch calls it on the loop.
class LinkSink {
 public:
  // `up`: the device can carry traffic, because it is up and has a carrier. The call may also come
  // for a device that has not changed.
  virtual void link_state(int ifindex, bool up) = 0;
  // The device was deleted, or moved to another network namespace.
  virtual void link_gone(int ifindex) = 0;
  // The device got or lost an IPv4 address.
  virtual void address_changed(int ifindex) = 0;

 protected:
  ~LinkSink() = default;
};

// Answers questions about the host's network devices.
class HostLinks {
 public:
  virtual ~HostLinks() = default;
  // The mask of the subnet with which the device of that number in this process's network namespace
  // has the address, in network byte order; nothing: it has no such address. The GID table may name
  // devices of another namespace.
  virtual std::optional<uint32_t> mask_of(int ifindex, uint32_t ip_be) = 0;
  // The VLAN that the device is for; 0: for none, as far as is known.
  virtual uint16_t vlan_of(int ifindex) = 0;
};

class LinkWatch final : public HostLinks {
 public:
  // A LinkWatch is made, used and destroyed on the loop, and `sink` outlives it.
  LinkWatch(Loop& loop, LinkSink& sink) : loop_(loop), sink_(sink) {}
  ~LinkWatch() override;
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

  // Returns null, or the reason why the sink will hear nothing. The sink hears the state of every
  // device once at the beginning.
  [[nodiscard]] const char* start(const char* library = "libnl-3.so.200");
  std::optional<uint32_t> mask_of(int ifindex, uint32_t ip_be) override;
  uint16_t vlan_of(int ifindex) override;

 private:
  enum class Kind : uint8_t { kUp, kDown, kGone, kAddress };
  struct News {
    int ifindex;
    Kind kind;
  };
  static int on_message(nl_msg* message, void* self) noexcept;
  void take(nl_msg* message);
  void readable();
  void ask_for_all();

  Loop& loop_;
  LinkSink& sink_;
  nl_sock* socket_ = nullptr;
  std::vector<News> news_;         // collected while libnl calls back; the sink is called after
  std::map<int, uint16_t> vlans_;  // the VLANs of the devices that are for one
  bool lost_ = false;              // news were lost, for want of room or memory
};

}  // namespace shift::net

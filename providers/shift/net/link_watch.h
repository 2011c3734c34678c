// What the kernel tells of the host's network devices: carriers and IPv4 addresses. Through
// libnl-3, opened when it is there: the stock libibverbs brings it along on most systems, and a
// guest must not make a program fail to start where it is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "net/loop.h"

struct nl_sock;
struct nl_msg;

namespace shift::net {

// What is told of devices and addresses. Called on the loop.
class LinkSink {
 public:
  // The device may carry traffic: it is up and has a carrier. Also said of devices that have not
  // changed.
  virtual void link_state(int ifindex, bool up) = 0;
  // The device is deleted, or in another network namespace now.
  virtual void link_gone(int ifindex) = 0;
  // An IPv4 address came to, or went from, the device.
  virtual void address_changed(int ifindex) = 0;

 protected:
  ~LinkSink() = default;
};

// What can be asked.
class HostLinks {
 public:
  virtual ~HostLinks() = default;
  // Does that device of our network namespace have the address? The devices that the GID table
  // names may be those of another namespace.
  virtual bool has_address(int ifindex, uint32_t ip_be) = 0;
};

class LinkWatch final : public HostLinks {
 public:
  // Made, used and destroyed on the loop; `sink` outlives it.
  LinkWatch(Loop& loop, LinkSink& sink) : loop_(loop), sink_(sink) {}
  ~LinkWatch() override;
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

  // Null, or why nothing will be told. Every device's state is told once at the beginning.
  [[nodiscard]] const char* start(const char* library = "libnl-3.so.200");
  bool has_address(int ifindex, uint32_t ip_be) override;

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
  std::vector<News> news_;  // collected while libnl calls back, which no exception may cross
  bool lost_ = false;       // messages were, or the memory for them
};

}  // namespace shift::net

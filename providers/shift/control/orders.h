// An operator's orders: NICs that are drained, and QPs that are moved. Keeps which NICs of each
// context are drained, and tells the sessions. Only the control loop uses this.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "group/group.h"
#include "net/loop.h"
#include "state/order_socket.h"

namespace shift::control {

class Sessions;
struct Session;

// Hears that the drained NICs of a context have changed, and that another process of the user has
// found a NIC broken.
class OrderSink {
 public:
  virtual void nic_suspected(const std::string& device) = 0;
  virtual void drained_changed(group::Context* context) = 0;

 protected:
  ~OrderSink() = default;
};

class Orders {
 public:
  Orders(net::Loop& loop, const Sessions& sessions, OrderSink& sink)
      : loop_(loop), sessions_(sessions), sink_(sink) {}
  ~Orders();

  // Follows the files in this base folder (state/directory.h), and takes orders at a socket of this
  // path, if it is not empty. Without this call there are no orders but those of drained_set().
  void begin(std::string base, const std::string& socket_path);

  // Tells the user's other processes that the NIC was found broken.
  void suspect_tell(const std::string& device) const;

  // Carries out what was sent to the socket.
  void take(const state::Order& order);

  void context_add(group::Context* context);
  void context_forget(group::Context* context) { drained_.erase(context); }
  void session_begin(Session& session) const;
  // Bit n: member n of the context is drained.
  uint8_t drained(const group::Context* context) const;
  void drained_set(group::Context* context, uint8_t members);

 private:
  void listen();
  void look();
  void names_read();
  uint8_t members_of(const group::Context* context) const;
  void move(const state::Order& order);

  net::Loop& loop_;
  const Sessions& sessions_;
  OrderSink& sink_;
  std::string base_, socket_path_;
  state::OrderSocket socket_;
  std::set<std::string> names_;
  std::map<group::Context*, uint8_t> drained_;
};

}  // namespace shift::control

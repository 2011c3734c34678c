// The socket at which a process takes an operator's orders (orders.h). Only the control loop uses
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "util/unique_fd.h"

namespace shift::state {

struct Order {
  enum class Kind : uint8_t { kLook, kMove, kHome, kSuspect };
  Kind kind = Kind::kLook;
  uint32_t qpn = 0;
  std::string device;

  bool operator==(const Order&) const = default;
};

// Nullopt if it is none.
std::optional<Order> order_parse(const char* text, size_t size);

class OrderSocket {
 public:
  // Makes the socket at this path. False, with the reason in `problem`, if that cannot be done.
  bool open(const std::string& path, std::string& problem);
  int fd() const { return fd_.get(); }

  // Takes one datagram, and never waits. `is_empty` tells that there is none any more. Nullopt:
  // there is none, or it is no order, or its sender is neither the process's user nor root.
  std::optional<Order> take(bool& is_empty) noexcept;

 private:
  UniqueFd fd_;
};

}  // namespace shift::state

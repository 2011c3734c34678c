// A process that is no peer. It has heard what the peers say to each other, and says it again with
// changes, on channels of its own (C11).
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/network.h"
#include "sim/schedule.h"

namespace shift::sim {

class Stranger {
 public:
  // What it may do to the ends: hand a message over, on this channel of its own.
  using Deliver =
      std::function<void(int host, net::PeerChannel* channel, const wire::Message& message)>;
  // Called when an end trusts it.
  using Fail = std::function<void(std::string what)>;

  Stranger(std::vector<Forged> plan, Deliver deliver, Fail fail);
  ~Stranger();
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // A message between the peers is about to be handed over to the host. The stranger speaks first.
  void heard(int host, const wire::Message& message);

 private:
  static constexpr size_t kHeardMax = 32;

  class Channel;
  void say(const Forged& forged);
  [[nodiscard]] bool forge(const Forged& forged, wire::Message& message) const;

  const std::vector<Forged> plan_;
  const Deliver deliver_;
  const Fail fail_;
  uint32_t count_ = 0;
  std::array<std::deque<std::vector<uint8_t>>, 2> heard_;  // by host, the newest last
  std::vector<std::unique_ptr<Channel>> channels_;         // two for each host: far and near
};

}  // namespace shift::sim

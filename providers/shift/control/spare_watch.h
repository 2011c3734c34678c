// Says when a group is still without a second path some time after its peer was found, and why: its
// operator expects a protection that does not exist. Each session has one, which only the control
// loop uses.
#pragma once

#include <string>

#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

class NicPairs;
class NicWatch;
struct Lines;
struct Session;

class SpareWatch {
 public:
  SpareWatch(Session& session, net::Loop& loop, NicPairs& pairs, const NicWatch& nics, Lines& lines)
      : session_(session), pairs_(pairs), nics_(nics), lines_(lines), look_(loop) {}

  // The peer is found.
  void start();
  // There is a second path, or none is wanted any more.
  void stop() { look_.cancel(); }
  // Names each path that could be the second one, with the reason why it is not.
  std::string reasons() const;

 private:
  void look();
  const char* reason(wire::PathName own_first) const;

  Session& session_;
  NicPairs& pairs_;
  const NicWatch& nics_;
  Lines& lines_;
  net::Timer look_;
};

}  // namespace shift::control

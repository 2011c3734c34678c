// Tells the peer which of the keys that it was told are gone, until the peer says that it has
// forgotten them. Each session has one of these objects, which only the control loop uses. What the
// peer was told, and what it has yet to forget, is kept with the context (group/told_keys.h),
// because the application's threads withdraw the keys.
#pragma once

#include <cstdint>

#include "group/told_keys.h"
#include "wire/messages.h"

namespace shift::control {

struct Session;

class GoneKeys {
 public:
  // `next_number`: the number of the next KeysGone of this process, which all sessions count on.
  GoneKeys(Session& session, uint32_t& next_number)
      : session_(session), next_number_(next_number) {}

  // Whether the peer answers KeysGone, as its Bind says. A peer of an older build does not.
  bool peer_forgets() const { return peer_forgets_; }
  void peer_forgets_set(bool forgets) { peer_forgets_ = forgets; }

  // Keys are gone. They are said now or, if the peer has yet to answer for others, after that: so
  // what is under way is bounded, and a program that deregisters much says it in few messages.
  void say();
  // Says again what may have been lost.
  void say_again();
  // The peer has forgotten what was said. An answer to anything but the last message is ignored.
  void take(const wire::KeysForgotten& message);
  // The peer can use none of the keys any more that it was told so far.
  void over();

 private:
  void send(group::ToldKeys::Gone gone);

  Session& session_;
  uint32_t& next_number_;
  uint32_t number_ = 0;  // of the last message; 0 before the first
  bool peer_forgets_ = false;
};

}  // namespace shift::control

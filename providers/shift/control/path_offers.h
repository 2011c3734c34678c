// The follower's part in making a path ready: it connects its QP for what the leader offers, tries
// the connection when it is asked to, and answers. One for each session. Control loop only.
#pragma once

#include <optional>

#include "control/input.h"
#include "group/group.h"
#include "wire/messages.h"

namespace shift::control {

class NicWatch;

class PathOffers {
 public:
  PathOffers(Session& session, const NicWatch& nics) : session_(session), nics_(nics) {}

  void take(const wire::Offer& offer);
  // The leader's word on a connection of this end: it is ready, or shall be tried.
  void take(const wire::Ready& message);
  // The connection of a member that carries nothing is of no use any more: the leader makes it
  // anew.
  void lose(int member);

 private:
  // What the leader said of one member's QP.
  struct Heard {
    std::optional<wire::Offer> later;  // arrived while the worker was busy with an earlier one
    // The connection that the leader has asked about, and what we answered.
    uint32_t tried = 0;
    wire::Ready::Kind answer{};
  };

  void connected(const wire::Offer& offer, int error);
  void answer(const wire::Offer& offer, uint8_t status);
  void try_out(const wire::Ready& ask);

  Session& session_;
  const NicWatch& nics_;
  group::PerMember<Heard> heard_;
  std::optional<wire::Ready> asked_;  // the probe that is under way
};

}  // namespace shift::control

// The follower's part in making a path ready: it connects its QP to what the leader offers, tries
// the connection when the leader asks for that, and answers. Each session has one, which only the
// control loop uses.
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
  // The member's QP is made, or could not be.
  void qp_made(int member);
  // A connection has joined the channel, or the store has named addresses.
  void host_known();
  // Takes the leader's word on a connection of this end: the connection is ready, or this end shall
  // try it.
  void take(const wire::Ready& message);
  // The connection of a member that carries no traffic is of no use any more: tells the leader,
  // which makes it anew.
  void lose(int member);
  // Whether the leader has said that the member's connection is ready, and its NICs still work.
  bool is_ready(int member) const;

 private:
  // What the leader said of one member's QP.
  struct Heard {
    // It came while the command thread was busy with an earlier Offer, or before the QP was made.
    std::optional<wire::Offer> later;
    // It names an address from which no connection has come yet.
    std::optional<wire::Offer> foreign;
    // The generation of the connection that this end tried last at the leader's request, and its
    // answer.
    uint32_t tried = 0;
    wire::Ready::Kind answer{};
    Connection ready;  // that the leader has called ready
  };

  void connected(const wire::Offer& offer, int error);
  void answer(const wire::Offer& offer, uint8_t status);
  void try_out(const wire::Ready& ask);

  Session& session_;
  const NicWatch& nics_;
  group::PerMember<Heard> heard_;
  std::optional<wire::Ready> asked_;  // the request whose probe is under way
};

}  // namespace shift::control

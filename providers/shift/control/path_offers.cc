#include "control/path_offers.h"

#include <utility>

#include "control/nic_watch.h"
#include "control/session.h"
#include "group/context.h"
#include "util/log.h"

namespace shift::control {

using group::Group;

void PathOffers::take(const wire::Offer& offer) {
  Group& group = session_.group;
  const int member = offer.path.follower;
  if (!session_.book.exists(offer.path, session_.control.is_leader && !session_.is_self) ||
      offer.address.mtu < IBV_MTU_256 || offer.address.mtu > IBV_MTU_4096) {
    return;
  }
  MemberQp& qp = session_.qps[member];
  if (!session_.search.owns(offer.address.gid)) {
    heard_[member].foreign = offer;
    return session_.search.ask_owner(offer.address.gid);
  }
  heard_[member].foreign.reset();
  if (session_.is_self) {
    // A QP that is connected to itself plays both parts, and the leader's part connects it.
    return session_.paths.take(wire::Accept{session_.ends.local, session_.ends.remote, offer.path,
                                            offer.generation, wire::Accept::kAccepted,
                                            offer.address});
  }
  const uint32_t known = qp.connection.generation;
  if (known == offer.generation && known != 0) {
    if (qp.connected && qp.connection.path == offer.path) answer(offer, wire::Accept::kAccepted);
    return;  // the message is a copy
  }
  if (known != 0 && !generation_is_newer(offer.generation, known)) return;
  if (qp.busy) {
    heard_[offer.path.follower].later = offer;
    return;
  }
  // As far as this end knows, that QP carries the traffic: the leader must be a round ahead.
  const bool carries = group.life.path.member == member;
  if (carries) return answer(offer, wire::Accept::kBusy);
  const bool lacks = session_.qps.lacks(member);
  if (lacks || session_.over || !nics_.is_up(group.context, member)) {
    return answer(offer, wire::Accept::kRefused);
  }
  if (!qp.made) {
    heard_[member].later = offer;
    return session_.qps.want(member);
  }
  qp.busy = true;
  qp.connected = false;
  session_.qps.choose_and_connect(member, offer.path, offer.address,
                                  [offer](Session& session, const MemberQps::Address& own) {
                                    session.qps[offer.path.follower].address = own.address;
                                    session.offers.connected(offer, own.error);
                                  });
}

void PathOffers::host_known() {
  for (int member = 0; member < session_.group.context->member_count; member++) {
    if (const auto offer = std::exchange(heard_[member].foreign, std::nullopt)) take(*offer);
  }
}

void PathOffers::qp_made(int member) {
  if (session_.qps[member].busy) return;
  if (const auto later = std::exchange(heard_[member].later, std::nullopt)) take(*later);
}

void PathOffers::connected(const wire::Offer& offer, int error) {
  MemberQp& qp = session_.qps[offer.path.follower];
  qp.busy = false;
  if (error == 0) {
    qp.connected = true;
    qp.connection = {offer.path, offer.generation};
  } else {
    SHIFT_DEBUG("qp 0x%x: path %u-%u cannot be connected: errno %d", session_.group.qpn(),
                offer.path.leader, offer.path.follower, error);
  }
  if (const auto later = std::exchange(heard_[offer.path.follower].later, std::nullopt)) {
    if (generation_is_newer(later->generation, offer.generation)) return take(*later);
  }
  answer(offer, error == 0 ? wire::Accept::kAccepted : wire::Accept::kRefused);
}

void PathOffers::answer(const wire::Offer& offer, uint8_t status) {
  wire::Accept answer{offer.to, offer.from, offer.path, offer.generation, status, {}};
  if (status == wire::Accept::kAccepted) {
    answer.address = session_.qps[offer.path.follower].address;
  }
  session_.search.send(answer);
}

void PathOffers::take(const wire::Ready& message) {
  Group& group = session_.group;
  if (!session_.book.exists(message.path, false)) return;
  const MemberQp& qp = session_.qps[message.path.follower];
  if (!qp.connected || qp.connection != Connection{message.path, message.generation}) return;
  if (message.kind == wire::Ready::Kind::kReady) {
    heard_[message.path.follower].ready = qp.connection;
    return session_.spare_ready();
  }
  if (message.kind != wire::Ready::Kind::kAsk) return;
  wire::Ready reply{session_.ends.local, session_.ends.remote, message.path, message.generation,
                    wire::Ready::Kind::kReady};
  const Heard& heard = heard_[message.path.follower];
  // This end does not send on that path: it has nothing to lose there, and nothing to try the path
  // with.
  if (!group.life.members[message.path.follower].can_send) return session_.search.send(reply);
  if (heard.tried == message.generation) {
    // The message is a late copy. The path may be in use by now, and the application would see the
    // completion of a probe on it.
    reply.kind = heard.answer;
    return session_.search.send(reply);
  }
  // The leader has given up an earlier path if it asks about a newer one; a late copy asks about an
  // older one.
  if (asked_ && !generation_is_newer(message.generation, asked_->generation)) return;
  try_out(message);
}

void PathOffers::try_out(const wire::Ready& ask) {
  asked_ = ask;
  session_.probe.start(ask.path.follower, PathProbe::kPatience, [this](bool passed) {
    wire::Ready reply = *std::exchange(asked_, std::nullopt);
    std::swap(reply.from, reply.to);
    reply.kind = passed ? wire::Ready::Kind::kReady : wire::Ready::Kind::kBroken;
    Heard& heard = heard_[reply.path.follower];
    heard.tried = reply.generation;
    heard.answer = reply.kind;
    session_.search.send(reply);
  });
}

bool PathOffers::is_ready(int member) const {
  const MemberQp& qp = session_.qps[member];
  return qp.connected && heard_[member].ready == qp.connection &&
         session_.book.peer_up() >> qp.connection.path.leader & 1 &&
         nics_.is_up(session_.group.context, member);
}

void PathOffers::lose(int member) {
  MemberQp& qp = session_.qps[member];
  qp.connected = false;
  session_.search.send(wire::Ready{session_.ends.local, session_.ends.remote, qp.connection.path,
                                   qp.connection.generation, wire::Ready::Kind::kBroken});
}

}  // namespace shift::control

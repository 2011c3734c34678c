// Keeps ways between NICs ready to be probed: a pair of the layer's own QPs for each, made and
// tried in calm, so that a fault finds them standing. A way that never worked says nothing when it
// fails. Only the control loop uses this (docs/decisions/0036-localisation.md).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "control/locate.h"
#include "control/nic_pairs.h"
#include "control/ways.h"
#include "group/probe_qp.h"
#include "net/network.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

class LateNics;
class NicWatch;
class Orders;
class Sessions;
struct Session;

class Prober {
 public:
  Prober(net::Loop& loop, const Sessions& sessions, const NicWatch& nics, LateNics& late,
         const Orders& orders)
      : loop_(loop),
        sessions_(sessions),
        nics_(nics),
        late_(late),
        orders_(orders),
        tend_(loop),
        look_(loop) {}

  // What a process may have, of its own ways and of those that it answers on.
  static constexpr size_t kWaysMax = 64, kAnswersMax = 64;
  // With so many peer processes it keeps ways across.
  static constexpr size_t kPeersMax = 4;

  // A group's path needs the way: keeps it ready from now on, if there is room for it.
  void want(const WayName& way);
  // Probes the way if it is ready. `then` is called once, before this returns or later.
  using Then = std::function<void(Trial)>;
  void probe(const WayName& way, Then then);
  // No way is made for the next second: there is a fault.
  void pause();

  // A message of the session's peer, which has proved itself.
  void take(Session& session, const wire::Probe& message);

  // The NIC's addresses have changed: its ways are made anew.
  void nic_changed(const group::Context* context, int member);
  void channel_forget(const net::PeerChannel* channel);
  void context_forget(const group::Context* context);

  bool is_ready(const WayName& way) const;

 private:
  using Qp = std::shared_ptr<group::ProbeQp>;
  // kAway: there are no QPs. kMaking: a command thread makes them. kOffered: the peer makes its
  // own. kTrying: the first probe is under way, and the way says nothing yet.
  enum class State : uint8_t { kAway, kMaking, kOffered, kTrying, kReady, kProbing };
  struct OwnWay {
    State state = State::kAway;
    uint32_t number = 0;  // of the attempt to make it
    Qp near, far;         // far: null, if the other end is the peer's
    wire::QpAddress own;
    int failures = 0;
    Time not_before{}, since{};  // the state's, where it is bounded
    std::vector<Then> waiting;
  };
  // A QP that answers the peer's probes.
  struct Answer {
    Qp qp;
    uint32_t number = 0;
    bool is_busy = false;
    Time not_before{};
  };

  bool is_making() const;
  // Whether an operator has said that one of the way's NICs shall be left: it carries no probes.
  bool is_drained(const WayName& name) const;
  void tend();
  void tend_soon();
  void make(const WayName& name, OwnWay& way);
  void near_made(const WayName& name, OwnWay& way);
  void far_made(const WayName& name, OwnWay& way, const wire::QpAddress& far);
  void connected(const WayName& name, OwnWay& way);
  void fail(const WayName& name, OwnWay& way);
  void away(const WayName& name, OwnWay& way);
  void look();
  void answered(const WayName& name, OwnWay& way, group::ProbeQp::Answer answer);
  void offer_take(Session& session, const wire::Probe& offer);
  Session* speaker(const PeerNics& peer) const;
  void drop(group::Context* context, int member, Qp qp);
  template <typename Gone>
  void forget(const Gone& is_gone);
  // Has the command thread of the member's NIC do `job`, and then this loop `then(way, result)`, if
  // the attempt still counts then.
  template <typename Job, typename Then2>
  void run(const WayName& name, int member, Job job, Then2 then);

  net::Loop& loop_;
  const Sessions& sessions_;
  const NicWatch& nics_;
  LateNics& late_;
  const Orders& orders_;
  uint32_t next_number_ = 1;
  std::map<WayName, OwnWay> ways_;
  std::set<const net::PeerChannel*> peers_;  // with ways across
  std::map<WayName, Answer> answers_;
  Time pause_until_{};
  net::Timer tend_, look_;
};

}  // namespace shift::control

// Finds out at which end a fault lies, beside the round that leaves the path: probes go over the
// ways that the prober keeps ready, and what they show, or what a NIC says of itself, becomes one
// incident record for each NIC. Only the control loop uses this
// (docs/decisions/0036-localisation.md).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/input.h"
#include "control/locate.h"
#include "control/prober.h"
#include "group/cause.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

class Orders;
class Reporter;

// What was found out, for the log and for shiftctl.
struct Incident {
  std::string device;  // the NIC here
  std::string peer;    // the peer's NIC; empty: the fault concerns all peers
  Place place = Place::kUnknown;
  group::Detector detector = group::Detector::kNone;
  uint32_t qps = 0;  // that have left, or leave now
  uint32_t us = 0;   // from the evidence to the verdict
  std::string evidence;

  bool is_certain() const { return place != Place::kUnknown; }
};

class Locator {
 public:
  Locator(net::Loop& loop, const Sessions& sessions, const NicWatch& nics, LateNics& late,
          Machine& machine, Reporter& reporter, const Orders& orders)
      : loop_(loop),
        sessions_(sessions),
        nics_(nics),
        machine_(machine),
        reporter_(reporter),
        orders_(orders),
        prober_(loop, sessions, nics, late, orders) {}

  // Without this call nothing is probed, and only what NICs say of themselves is told.
  void begin();
  bool probes() const { return probes_; }
  const Prober& prober() const { return prober_; }

  // The session may carry traffic over another path than before: that path's ways are kept ready.
  void touch(Session& session);
  // The session leaves the path by a fault, of which `cause` told.
  void evidence(const Session& session, PathName path, group::Cause cause);
  // The NIC says that it carries nothing any more, and so many QPs leave it.
  void nic_lost(const group::Context* context, int member, group::Cause cause, uint32_t qps);
  void addresses_changed(const group::Context* context, int member) {
    prober_.nic_changed(context, member);
  }
  // Another process of the user has found the NIC broken. This one looks whether it still answers.
  void suspect(const std::string& device);
  // A message of the session's peer, which has proved itself.
  void take(Session& session, const wire::Probe& message);

  void channel_forget(const net::PeerChannel* channel);
  void context_forget(const group::Context* context);

 private:
  // What is under way, or was, between a NIC here and one of a peer.
  struct Case {
    Case(net::Loop& loop, WayName n, Time at) : name(n), begun(at), bound(loop) {}
    const WayName name;
    const Time begun;
    group::Cause cause;
    std::string device;  // the NIC here
    Places own, peer;
    Trials trials;
    std::set<Way> probing;  // ways whose probes are under way
    bool is_over = false;
    bool is_hearsay = false;  // another process has told of the fault
    bool has_waited = false;  // the peer's word will not come any more
    std::set<uint64_t> left;  // serials of the sessions that have left
    // What each group on the same NIC here had completed when the case began.
    std::map<uint64_t, uint64_t> completed;
    net::Timer bound;
  };

  // What a NIC has said of itself. Each context of the process hears it, and perhaps twice.
  struct Lost {
    explicit Lost(net::Loop& loop) : gather(loop) {}
    Incident incident;
    net::Timer gather;
  };

  // A fault of one NIC is noticed by many QPs, and by the peer, within this time: then they are all
  // in one record.
  static constexpr std::chrono::milliseconds kGather{20};
  // How long a NIC that another process has found broken has time to answer. One that works needs
  // microseconds.
  static constexpr std::chrono::milliseconds kAnswer{3};
  // How long the peer's word is waited for, from the beginning.
  static constexpr std::chrono::milliseconds kWord{120};

  Case* find(const WayName& name);
  // Since when the session has been on its path.
  static Time since(const Session& session);
  // How many requests and receives of the group are over.
  static uint64_t completed_by(const group::Group& group);
  bool is_known(const Session& session, const WayName& name);
  Case* open(const Session& session, const WayName& name, group::Cause cause);
  void start(Case& one);
  void tried(const WayName& name, Time begun, Way way, Trial trial);
  void tell_peer(const Case& one, Trial own);
  void confirm(Case& one);
  void conclude_maybe(Case& one);
  void conclude(Case& one, Place place, std::string evidence);
  bool has_traffic(const Case& one) const;
  bool is_on(const Session& session, const Case& one, Place place) const;
  void move(Case& one, Place place);
  void join(const std::string& device, Incident& incident);
  void tell(const Incident& incident) const;

  net::Loop& loop_;
  const Sessions& sessions_;
  const NicWatch& nics_;
  Machine& machine_;
  Reporter& reporter_;
  const Orders& orders_;
  Prober prober_;
  bool probes_ = false;
  std::list<Case> cases_;  // those that are over stay, to know the latecomers of the same fault
  // What peers have told of faults that this end had not noticed yet.
  struct Word {
    Time heard;
    Trial trial;
  };
  std::map<WayName, Word> words_;
  std::map<std::string, Lost> lost_;    // by the NIC's name
  std::map<std::string, Time> broken_;  // when a NIC here was last found broken
};

}  // namespace shift::control

// All that control/ knows of one group, from RTR until the application resets, breaks or destroys
// the QP. A session has one part for each duty, and each part keeps its own state. Only the control
// loop uses this.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "control/avoidance.h"
#include "control/drain.h"
#include "control/error_watch.h"
#include "control/failing.h"
#include "control/gone_keys.h"
#include "control/key_exchange.h"
#include "control/line_budget.h"
#include "control/member_qps.h"
#include "control/path_book.h"
#include "control/path_maker.h"
#include "control/path_offers.h"
#include "control/path_probe.h"
#include "control/peer_search.h"
#include "control/round.h"
#include "control/spare_watch.h"
#include "control/spread.h"
#include "control/verdict.h"
#include "control/way_back.h"

namespace shift::control {

class ReadBacks;
class Reporter;

// What exists once in a process and is used by all sessions.
struct Shared {
  net::Loop& loop;
  net::PeerNetwork& net;
  Machine& machine;
  const Sessions& sessions;
  Jobs& jobs;
  NicWatch& nics;
  NicPairs& pairs;
  Turns& turns;  // to try a path
  Turns& moves;  // to go to a better path
  Shares& shares;
  ErrorWatch& errors;
  ReadBacks& read_backs;
  Lines& lines;
  Reporter& reporter;
  // The numbers of the next KeyQuery, Members, KeysGone and Avoid.
  uint32_t next_query = 1, next_members = 1, next_gone = 1, next_avoid = 1;
};

// What the ways depend on that stand ready to be probed for a session (control/locator.h).
struct WaysWanted {
  PathName path;
  const net::PeerChannel* channel;
  int peer_members;

  bool operator==(const WaysWanted&) const = default;
};

struct Session final : PeerSearchSink {
  Session(group::Group& g, Shared& s);

  group::Group& group;           // outlives the session
  group::ControlState& control;  // the group's part that control/ keeps
  const group::Ends& ends;       // the names of its QP and of the peer's
  const uint64_t serial;
  const bool is_self;  // the QP is connected to itself
  const Time made;
  // The group has failed or ended, or the peer closed: no more paths.
  bool over = false;
  bool is_touched = false;  // the reporter will tell of it
  std::optional<WaysWanted> ways;
  bool peer_probes = false;  // the peer knows Probe
  bool lost_early = false;  // the path's NIC was lost while the QP was in RTR and nobody was proven

  PeerSearch search;
  MemberQps qps;
  PathProbe probe;
  PathBook book;
  PathMaker paths;
  Spread spread;
  Avoidance avoidance;
  WayBack way_back;
  PathOffers offers;
  Drain drain;
  Round round;
  KeyExchange keys;  // of the peer's
  GoneKeys gone;     // of this end
  SpareWatch spare;
  Failing failing;
  Verdict verdict;
  Unpolled unpolled;

  void end();
  // Whether waiting for a path, or for the peer's message, may help. It cannot help when the
  // session is over, when the default NIC is dead, which the stock library reports at once, or when
  // the peer's process or its QP is gone.
  bool may_come_back() const;
  // How long the application's requests wait for a path or a peer that is gone for now: as long as
  // they might on the stock library, and SHIFT_EXCHANGE_MS at least.
  std::chrono::nanoseconds patience() const;
  // Says everything that counts, on a channel that is new or has a new connection: messages on a
  // connection that is gone now may be lost. The table has rows for copies.
  void say_again();
  void send_members();
  // Takes the number of a Members from the peer. False if the message is not newer than the last
  // one: an older message must not undo a newer one.
  bool take_members_sequence(uint32_t sequence);
  // Connections that are missing are dialed now: a NIC of the peer's is back, and none may have
  // reached it yet; or a round goes on for long, and what is said may go over none that works. A
  // peer whose NICs come and go all the time must not set the pace of that (C11).
  void redial_soon();
  // A path beside the current one is ready: a fault will not have to wait for one. Only the first
  // call counts.
  void spare_ready();
  Reporter& reporter() { return shared_.reporter; }
  void watch_errors() { shared_.errors.watch(*this); }
  // Called before the group is committed to the member.
  void read_backs_begin(int member);

 private:
  void channel_found() override { say_again(); }
  void bind_sent() override { spread.bind_sent(); }
  void peer_proven() override { spare.start(); }
  void host_known() override;
  void redial();
  void peer_missing(const char* cause) override;
  void peer_gone() override { gone.over(); }

  Shared& shared_;
  bool has_spare_ = false;  // a second path has been ready
  uint32_t members_heard_ = 0;
  // Runs for a pause after each time that connections were dialed again, and whether somebody has
  // asked for that since.
  net::Timer redial_pause_;
  bool redials_ = false;
};

}  // namespace shift::control

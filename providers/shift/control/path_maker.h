// Makes paths ready for the leader: it sends Offer, takes Accept, probes, and sends Ready. It runs
// beside the machine, and tells the machine when the path is ready that the machine asked for
// (kPathReady). Each session has one, which only the control loop uses.
#pragma once

#include <cstdint>
#include <optional>

#include "control/input.h"
#include "control/nic_pairs.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

class Sessions;
class Turns;

class PathMaker {
 public:
  PathMaker(Session& session, const Sessions& sessions, net::Loop& loop, Machine& machine,
            NicPairs& pairs, Turns& turns)
      : session_(session),
        sessions_(sessions),
        loop_(loop),
        machine_(machine),
        pairs_(pairs),
        turns_(turns),
        silence_(loop),
        nic_look_(loop),
        tend_again_(loop) {}

  // Goes on with whatever the session's paths need now. It does no harm at any time, and nothing on
  // the follower.
  void tend();
  // Gives up the attempt because the channel is lost or the group has ended, which says nothing
  // about the path.
  void stop();
  // Sends the peer what the attempt's stage asks of it. Once more, too, when the connection of the
  // channel on which it was sent may have been lost: the peer recognises copies.
  void say_again();
  // The group seeks from now on: an attempt that is under way has no more patience than others.
  void hurry();

  void take(const wire::Accept& message);
  // A connection has joined the channel, or the store has named addresses.
  void host_known();
  void take(const wire::Ready& message);

  // Whether a path is being tried, and whether the path that is being tried is this one and
  // connected.
  bool is_trying() const { return attempt_.has_value(); }
  bool is_probing(PathName path) const {
    return attempt_ && attempt_->connection.path == path && attempt_->stage >= Stage::kProbing;
  }
  // The NIC does not answer commands: an attempt that waits for it is given up.
  void nic_late(int member);
  // The path that is being tried swallows what is sent on it.
  void attempt_broke() { end_broken("nothing passes"); }

  // The ways between the NICs of both ends, which all groups with that peer share.
  Ways& ways() const;
  NicPair& pair_of(PathName path) const { return ways()[path]; }

 private:
  enum class Stage : uint8_t { kOffered, kConnecting, kProbing, kAsked };
  // kUndecided: the follower cannot let go of the QP yet, or the peer, the channel or the group
  // went away, which says nothing about the path.
  enum class Outcome : uint8_t { kReady, kBroken, kUndecided };
  struct Attempt {
    Connection connection;
    Time begun;
    Stage stage = Stage::kOffered;
    // How long it took until now that something has to pass.
    std::chrono::nanoseconds set_up{};
  };

  std::optional<PathName> choose(Time* again);
  bool is_slow(int member) const;
  std::optional<PathName> next_but_slow(Time* again) const;
  void watch_nics();
  void start(PathName path);
  bool seeks() const;
  void address_chosen(const Connection& connection, int error);
  void connected(const Connection& connection, int error);
  void ask_peer();
  std::chrono::milliseconds patience() const;
  void expect_answer(Outcome if_silent);
  void end(Outcome outcome);
  void end_broken(const char* why);
  void end_ready(const Connection& connection, bool was_broken);
  void go_on_with(const Connection& connection);
  // Has the other groups tend to their paths: those of a pair that was broken have waited for the
  // group that tried it.
  void tend_others();

  Session& session_;
  const Sessions& sessions_;
  net::Loop& loop_;
  Machine& machine_;
  NicPairs& pairs_;
  Turns& turns_;
  std::optional<wire::Accept> foreign_;  // names an address that has not been reached yet
  std::optional<Attempt> attempt_;
  net::Timer silence_;   // bounds the attempt's wait for the peer
  net::Timer nic_look_;  // runs while the group seeks
  uint32_t next_generation_ = 1;
  net::Timer tend_again_;
};

}  // namespace shift::control

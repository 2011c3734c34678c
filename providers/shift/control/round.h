// One change of a session's path: both ends fence the old path, commit to a target, tell how far
// they got, and replay what is left. Keeps what is known of the round under way, and of the path
// that the last round chose. Each session has one of these objects, which only the control loop
// uses.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "control/input.h"
#include "group/fence.h"
#include "group/member_qp.h"
#include "group/replay.h"
#include "net/timer.h"
#include "wire/messages.h"

namespace shift::control {

class Jobs;
class NicWatch;
struct Lines;

class Round {
 public:
  Round(Session& session, net::Loop& loop, Machine& machine, Jobs& jobs, const NicWatch& nics,
        Lines& lines)
      : session_(session),
        loop_(loop),
        machine_(machine),
        jobs_(jobs),
        nics_(nics),
        lines_(lines),
        deadline_(loop),
        look_again_(loop),
        answers_(loop) {}

  // ---- what is kept of an input before its actions run

  // `leaves`: the path is left because of this cause, or the group fails.
  void note_cause(group::Cause cause, bool leaves);
  // Notes when the cause of leaving showed itself, and what told of it.
  void note_evidence(group::Detector detector, Time seen);
  // The path is left because of a fault, and other groups of the path follow; or the leader chose
  // to leave it.
  void note_fault() { is_by_fault_ = true; }
  void note_choice() { is_by_fault_ = false; }
  void note_refusal(wire::RefuseReason reason) { refusal_ = reason; }

  // ---- the table's actions, in the order of a round

  // Takes the peer's epoch if it is ahead, else one more than this end's own.
  void enter_epoch(std::optional<uint32_t> peer_epoch);
  void send_switch();
  void arm_deadline();
  void cancel_deadline() { deadline_.cancel(); }
  // The fence has decided on the path: feeds the result.
  void fenced(const group::Fence::Entry& entry);
  // Keeps the peer's counter; the follower learns the target, too.
  void keep(const wire::Progress& progress);
  // Leader: sets the target.
  void set_target(const Connection& target) { target_ = target; }
  // Commits this end's receives to the target. Returns nothing, or an input that tells why it
  // cannot.
  std::optional<Input> commit(const Input& input);
  void send_progress();
  // Posts on the target what is left. Returns nothing, or an input that tells why it cannot.
  std::optional<Input> replay(const Input& input);

  // Says on a new connection of the channel what the peer has to know in this state.
  void say_again();

  bool is_by_fault() const { return is_by_fault_; }
  // The path that the first round since the last success left.
  const std::optional<PathName>& left() const { return left_; }
  const Connection& target() const { return target_; }
  Time detected() const { return detected_; }
  Time active_since() const { return active_since_; }
  const char* cause() const { return cause_; }
  group::Detector detector() const { return detector_; }
  wire::RefuseReason refusal() const { return refusal_; }

 private:
  int own_member() const;
  int peer_member() const;
  void deadline_look();
  bool is_in_vain();
  void watch_answers();
  void ask_health(void (*then)(Round& round, const group::QpHealth& health));
  void await_registrations(uint64_t receives_end);
  void tell_switched(const group::ReplayResult& result, Time now) const;

  Session& session_;
  net::Loop& loop_;
  Machine& machine_;
  Jobs& jobs_;
  const NicWatch& nics_;
  Lines& lines_;

  // The target of the round, and of the traffic after it.
  Connection target_;
  // The connection that this end's requests were posted on last; at first the application's own.
  Connection sent_;
  // How far this end's responder got on connections that are fenced, for a peer that asks. A few of
  // them are kept, because a peer that has had no Progress from here since then needs an old one.
  std::deque<wire::ResponderPsn> responders_;
  static constexpr size_t kRespondersMax = 8;
  // The Progress that may have to be repeated. commit() counts the notifications for it, because
  // the new path adds to the counter from there on.
  std::optional<wire::Progress> own_progress_;

  net::Timer deadline_;  // feeds kDeadline
  net::Timer look_again_;
  net::Timer answers_;  // runs until the NIC must have given up, if the path answers nothing
  Time detected_{}, fenced_{}, give_up_at_{}, look_at_{}, active_since_{};
  // The application's requests before the position `waiting_to_` of the journal wait since
  // `waiting_since_`.
  uint64_t waiting_to_ = 0;
  Time waiting_since_{};
  bool is_by_fault_ = false;
  std::optional<PathName> left_;
  const char* cause_ = "";
  // What told first that the path must be left, and when.
  group::Detector detector_ = group::Detector::kNone;
  Time evidence_{};
  wire::RefuseReason refusal_ = wire::RefuseReason::kUnknown;

  // A row of rounds between which nothing completes: when the first one began, and when the last
  // one had its fence.
  struct Trouble {
    Time since{}, fenced{};
    uint64_t done = 0;  // completed by then, here and as the peer counts
    int rounds = 0;
  } trouble_;
};

}  // namespace shift::control

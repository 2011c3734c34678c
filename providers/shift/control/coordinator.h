// Runs the failure state machine of every group of this process on the control loop: turns
// completions, device events, timers and peers' messages into fsm events, and the table's actions
// into steps of group/ and messages. feed() is the only place where a state is assigned.
//
// coordinator.cc runs the machine, actions.cc the table's actions; of a round's steps fencing.cc
// has the first and replaying.cc the last. attempts.cc makes paths ready for the leader,
// connecting.cc the members' QPs for both ends, way_back.cc goes back to better paths. binding.cc
// finds peers, messages.cc takes in what they say, watch.cc what devices say, unpolled.cc looks
// into queues that nobody may be looking into, links.cc keeps what is known of the devices'
// addresses and network devices.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "control/path_book.h"
#include "fsm/fsm.h"
#include "group/context.h"
#include "group/fault_sink.h"
#include "group/group.h"
#include "group/member_qp.h"
#include "group/path_switch.h"
#include "group/port.h"
#include "group/twins.h"
#include "net/link_watch.h"
#include "net/loop.h"
#include "net/network.h"
#include "net/presence.h"

namespace shift::control {

using net::FindError;
using net::FindRequest;
using net::HostLinks;
using net::Loop;
using net::PeerChannel;
using net::PeerNetwork;
using net::Presence;

using Time = Loop::Clock::time_point;

// Of two connections of one QP, with wrap-around.
inline bool generation_is_newer(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a - b) > 0;
}

// What the coordinator knows of one group beside its state. Control loop only.
struct Binding {
  group::Group* group = nullptr;
  uint64_t serial = 0;
  wire::QpName local;    // its key in by_name_
  bool is_self = false;  // the QP is connected to itself
  PeerChannel* channel = nullptr;
  // Addresses that the peer's newest Bind names, and the connections that are kept for them:
  // between which of ours and which of its. Leader.
  using Route = std::pair<uint32_t, uint32_t>;
  std::vector<uint32_t> peer_ips;
  std::vector<Route> routes;
  bool looking = false;  // find_peer is under way
  Loop::TimerId look_again = 0;
  // Leader: when Bind is said again to a peer that was found and has proved nothing, after which
  // pause, and until when.
  Loop::TimerId bind_again = 0;
  std::chrono::milliseconds bind_pause{};
  Time bind_until{};
  bool peer_proven = false;     // it has shown that it owns the other QP
  bool channel_proven = false;  // ... and has said so on `channel`
  bool armed = false;           // a second path has been ready
  Loop::TimerId no_peer = 0;    // follower: nobody has looked for it
  uint32_t members_heard = 0;   // sequence of the peer's newest Members
  bool over = false;            // the peer closed, or cannot be moved: no more paths

  // The QP of one member. It has at most one connection, made by the worker.
  struct MemberQp {
    bool made = false;
    bool busy = false;       // a job of the worker is under way
    bool connected = false;  // for `generation` of `path`
    PathName path;
    uint32_t generation = 0;
    uint32_t tried = 0;  // the generation that the leader has asked about, and what we answered
    wire::Ready::Kind answer{};
    wire::QpAddress address;           // as told to the peer for that connection
    std::optional<wire::Offer> later;  // arrived while busy
  };
  group::PerMember<MemberQp> qps;

  // Leader.
  PathBook book;
  struct Attempt {
    enum class Stage : uint8_t { kOffered, kConnecting, kProbing, kAsked } stage = Stage::kOffered;
    // kUndecided: the follower cannot let go of the QP yet, or somebody went away. That says
    // nothing about the path.
    enum class Outcome : uint8_t { kReady, kBroken, kUndecided };
    PathName path;
    uint32_t generation = 0;
    Loop::TimerId timeout = 0;
  };
  std::optional<Attempt> attempt;
  bool waits_for_turn = false;  // among attempts_waiting_
  uint32_t next_generation = 1;
  Loop::TimerId tend_again = 0, better_again = 0;
  int drain_failures = 0;
  // The current path given up for a better one that cannot be tried beside it (way_back.cc).
  struct Trade {
    std::optional<PathName> candidate;  // which, if it comes to that
    Time since{};                       // it has been the candidate
    Time not_before{};                  // because the last drain was called off
    std::optional<PathName> wanted;     // the round for it is under way
    Loop::TimerId end = 0;              // then any other path will do
  } trade;
  // Follower: the probe that the leader asked for.
  std::optional<wire::Ready> asked;
  Loop::TimerId probe_poll = 0;
  Time probe_deadline{};

  // The target of the round, and of the traffic after it.
  PathName target;
  uint32_t target_generation = 0;
  // The connection that our requests were posted on last; at first the application's own.
  PathName sent_path;
  uint32_t sent_generation = 0;
  // How far our responder got on connections that are fenced, for a peer that asks. Few: one that
  // never got a Progress of ours since needs an old one.
  std::deque<wire::ResponderPsn> responders;
  static constexpr size_t kRespondersMax = 8;
  // The peer's Progress that is being handled.
  std::optional<wire::Progress> heard;

  // The round under way.
  Loop::TimerId deadline = 0;
  Time detected, fenced, give_up;
  bool by_fault = false;         // other groups of the path follow
  std::optional<PathName> left;  // the path that the first round since left
  Time active_since{};
  // Rounds between which nothing completes: the first one's beginning, the last one's fence.
  struct Trouble {
    Time since{}, fenced{};
    uint64_t done = 0;  // by then, here and as the peer counts
    int rounds = 0;
  } trouble;
  const char* cause = "";
  // What told first that the path must be left, and when.
  group::Detector detector = group::Detector::kNone;
  Time evidence{};
  wire::RefuseReason refuse_reason = wire::RefuseReason::kUnknown;
  // Epoch of the peer's message that is being handled: a refusal answers that one, and a new round
  // takes that one.
  std::optional<uint32_t> answered_epoch;
  uint32_t query_id = 0;
  bool query_pending = false;          // something waits for the answer
  bool registering = false;            // pump_later() is on its way
  Loop::TimerId key_deadline = 0;      // for keys wanted after the switch
  std::optional<wire::Progress> told;  // what a repeated Progress must say again

  // Where a QP's errors may go unseen: requests posted at the last look, and when the NIC will have
  // given up what it has not done by then (not known yet: max).
  uint64_t posted = 0;
  Time look_until{};

  // The way back.
  uint32_t drain_attempt = 0;    // leader: counts; follower: the one asked for last
  uint32_t drain_cancelled = 0;  // follower: the newest one called off
  bool own_drained = false, peer_drained = false;
  Loop::TimerId drain_poll = 0;
  Time drain_give_up{};
};

class Coordinator final : public net::Delegate, public net::LinkSink, public group::FaultSink {
 public:
  Coordinator(Loop& control, Loop& worker);
  ~Coordinator() override;
  // Before anything else.
  void network_set(std::unique_ptr<PeerNetwork> network) { net_ = std::move(network); }
  // Without it the members' network devices are not looked at.
  void links_set(std::unique_ptr<HostLinks> links) { links_host_ = std::move(links); }

  // ---- from any thread, about objects that live at least until the matching *_forget returns

  // A context with further members was opened: serve its addresses, watch its events.
  void context_add(group::Context* context);
  void context_forget(group::Context* context);
  // Destroys the CQ's real twins; errno.
  int cq_destroy(group::CompletionQueue* cq);
  // The QP reached RTR: its peer is known and can be looked for.
  void group_add(group::Group* group);
  // A QP is about to be connected between these: whether SHIFT runs at its peer's address. Waits
  // for one round trip; 100 ms at most, and a second more for a GID that holds no address.
  bool peer_present(group::Context* context, const wire::Gid& local,
                    const wire::Gid& remote) noexcept;
  // It reached RTS.
  void group_sends(group::Group* group);
  // The application moves it to ERR or RESET, or destroys it: nothing is masked any more. Waits.
  void group_forget(group::Group* group);

  void fault(group::Group* group, fsm::Event event, int member, group::Cause cause) override;
  void pump_wanted(group::Group* group) override;
  void receives_wanted(group::SharedQueue* queue) override;
  void receives_stuck(group::SharedQueue* queue, int member) override;
  void receives_refused(group::SharedQueue* queue, int member) override;

  // What the kernel says of network devices.
  void link_state(int ifindex, bool up) override;
  void link_gone(int ifindex) override;
  void address_changed(int ifindex) override;
  // Network devices that are kept in mind for having no carrier.
  size_t carrierless_count() const { return carrierless_.size(); }

  // What a device said (watch.cc reads it from the descriptors; tests and simulations tell).
  // `is_unprotected`: about a QP that is the application's own on the default NIC.
  void device_event(group::Context* context, int member, const ibv_async_event& event,
                    bool is_unprotected = false);

 private:
  // Delegate
  bool knows_qp(const wire::QpName& name) override;
  void on_message(PeerChannel* channel, const wire::Message& message) override;
  void on_connection_up(PeerChannel* channel, bool first) override;
  void on_channel_down(PeerChannel* channel) override;

  // coordinator.cc
  // `seen`: when the cause showed itself, if that was not just now.
  void feed(Binding& binding, fsm::Event event, group::Cause cause = {}, Time seen = {});
  // The same for a message of the peer's.
  void feed_answer(Binding& binding, uint32_t epoch, fsm::Event event, group::Cause cause = {});
  Binding* find(uint64_t serial);
  // A timer about a binding that may be gone when it comes.
  template <typename Then>
  Loop::TimerId later(const Binding& binding, std::chrono::nanoseconds pause, Then then) {
    return control_.timer_start(pause, [this, serial = binding.serial, then] {
      if (Binding* found = find(serial)) then(*found);
    });
  }
  // Has the worker do `job` for the group and `then(binding, result)` here. A group outlives its
  // jobs, for destroying it waits for them; its binding may not.
  template <typename Job, typename Then>
  void at_worker(const Binding& binding, Job job, Then then) {
    ++binding.group->jobs;
    worker_.call_soon([this, serial = binding.serial, group = binding.group, job, then] {
      const auto result = job(*group);
      --group->jobs;  // it may be gone behind this
      control_.call_soon([this, serial, then, result] {
        if (Binding* found = find(serial)) then(*found, result);
      });
    });
  }
  // Has `then(binding)` run here, behind all that the worker has to do by now: registrations.
  template <typename Then>
  void behind_worker(const Binding& binding, Then then) {
    at_worker(
        binding, [](group::Group&) { return 0; }, [then](Binding& found, int) { then(found); });
  }
  void pump(Binding& binding);
  void pump_later(Binding& binding);
  void binding_forget(Binding& binding);

  // actions.cc. False: the rest of the cell's actions are not run; an event tells why.
  using Events = std::deque<fsm::Event>;
  bool run(Binding& binding, fsm::Action action, Events* follow_up);
  void enter_epoch(Binding& binding);
  void give_up(Binding& binding);
  void unprotect(Binding& binding, Events* follow_up);
  void watch_drain(Binding& binding);
  void send_switch(Binding& binding);
  void send_drain(Binding& binding, wire::Drain::Kind kind);
  void refuse(PeerChannel* channel, const wire::QpName& from, const wire::QpName& to,
              uint32_t epoch, wire::RefuseReason reason);

  // fencing.cc
  // One batch of groups whose paths are being shut.
  struct RunningFence {
    group::Fence fence;
    std::vector<uint64_t> serials;  // 0: it was told the result
    Time begun;
  };
  void fences_run();
  void fences_step();
  void fence_results(RunningFence& running);
  void fence_finished(Binding& binding, group::Fence::Result result);
  void fence_over(Binding& binding, uint64_t receives_end);
  bool is_in_vain(Binding& binding);
  void fence_forget(const group::Group* group);

  // replaying.cc
  bool commit(Binding& binding, Events* follow_up);
  void request_keys(Binding& binding, Events* follow_up);
  bool query_keys(Binding& binding);
  void replay(Binding& binding, Events* follow_up);
  void spread(Binding& origin);

  // attempts.cc: the leader
  // Goes on with whatever the paths need now.
  void tend(Binding& binding);
  void tend_others(const Binding& binding);
  bool attempt_may_start(Binding& binding);
  void attempt_start(Binding& binding, PathName path);
  void attempt_watch(Binding& binding, Binding::Attempt::Outcome if_silent);
  void attempts_next();
  void attempt_send(Binding& binding);
  void attempt_accepted(Binding& binding, const wire::Accept& message);
  void attempt_connected(Binding& binding, uint32_t generation, int error);
  void attempt_end(Binding& binding, Binding::Attempt::Outcome outcome);
  void probe_ask(Binding& binding);
  void path_take(Binding& binding, const PathBook::Ready& ready);
  void spare_ready(Binding& binding);
  Link& link_of(const Binding& binding, PathName path);

  // connecting.cc
  void members_make(Binding& binding);
  void offer_take(Binding& binding, const wire::Offer& offer);
  void offer_connected(Binding& binding, const wire::Offer& offer, int error);
  void offer_answer(Binding& binding, const wire::Offer& offer, uint8_t status);
  void probe_post(Binding& binding, int member);
  void probe_check(Binding& binding);
  void members_up_changed(group::Context* context);
  uint8_t members_up(const group::Context* context) const;

  // way_back.cc
  void better_check(Binding& binding);
  void trade_check(Binding& binding);
  void trade_begin(Binding& binding, PathName path);
  void trade_seek(Binding& binding);
  void trade_end(Binding& binding);

  // binding.cc
  std::optional<Presence::Addresses> addresses_find(group::Context* context, const wire::Gid& local,
                                                    const wire::Gid& remote);
  void look_for_peer(Binding& binding);
  void peer_missing(Binding& binding, const char* cause);
  void peer_found(Binding& binding);
  void look_later(Binding& binding, std::chrono::milliseconds pause);
  void send_bind(Binding& binding);
  void bind_watch(Binding& binding);
  PeerChannel* channel_set(Binding& binding, PeerChannel* channel);
  void channel_widen(Binding& binding);
  bool proof_fits(const Binding& binding, const wire::Bind& bind);
  Binding* addressee(PeerChannel* channel, const wire::QpName& from, const wire::QpName& to);
  Binding* proven_addressee(PeerChannel* channel, const wire::QpName& from, const wire::QpName& to);
  static bool is_proven(const Binding& binding, const PeerChannel* channel);
  void repeat(Binding& binding);

  // messages.cc
  friend struct MessageVisitor;
  void on(PeerChannel* channel, const wire::Bind& message);
  void on(PeerChannel* channel, const wire::Offer& message);
  void on(PeerChannel* channel, const wire::Accept& message);
  void on(PeerChannel* channel, const wire::Ready& message);
  void on(PeerChannel* channel, const wire::Members& message);
  void on(PeerChannel* channel, const wire::Drain& message);
  void on(PeerChannel* channel, const wire::Switch& message);
  void on(PeerChannel* channel, const wire::Progress& message);
  void on(PeerChannel* channel, const wire::KeyQuery& message);
  void on(PeerChannel* channel, const wire::KeyReply& message);
  void on(PeerChannel* channel, const wire::Refuse& message);
  void on(PeerChannel* channel, const wire::Close& message);
  void on(PeerChannel* channel, const wire::Hello&) {}
  void on(PeerChannel* channel, const wire::HelloReply&) {}
  void on(PeerChannel* channel, const wire::GidQuery&) {}
  void on(PeerChannel* channel, const wire::GidAnswer&) {}
  void answer_keys(Binding& binding, const wire::KeyQuery& message, bool may_wait);
  void key_denied(Binding& binding);

  // watch.cc: device events and CQs nobody polls
  static bool is_protected(const group::Group& group);
  void async_readable(group::Context* context, int member);
  void forward(group::Context* context, const ibv_async_event& event, bool is_unprotected);
  void request_refused(uint64_t serial);
  bool name_for_application(group::Context* context, ibv_async_event* event);
  void shared_queue_low(group::Context* context, int member, const ibv_async_event& event);
  void member_lost(group::Context* context, int member, group::Cause cause);
  void member_back(group::Context* context, int member);
  void watch_readable(group::Context* context, int member);
  void watch_arm(Binding& binding);

  // unpolled.cc: CQs that only the application may arm
  void unpolled_watch(Binding& binding);
  void unpolled_timer_start();
  void unpolled_look();

  // links.cc: addresses and network devices
  std::vector<wire::Gid> addresses_read(group::Context* context, int member);
  wire::Gid address_of(const group::Group& group) const;
  wire::Gid address_of(const group::Context* context, const wire::Gid& local) const;
  bool is_on(const group::Context* context, int member, int ifindex) const;
  void links_forget();
  void gids_changed(group::Context* context, int member);
  bool has_carrier(const group::Context* context, int member) const;
  void carrier_set(group::Context* context, int member);
  void carrier_changed(group::Context* context, int member, int ifindex);
  void spare_lost(Binding& binding, int member);
  void leave_address(group::Context* context, int member, const wire::Gid& gid, group::Cause cause);

  Loop& control_;
  Loop& worker_;
  std::unique_ptr<PeerNetwork> net_;
  std::unique_ptr<HostLinks> links_host_;
  Presence presence_;

  std::unordered_map<uint64_t, std::unique_ptr<Binding>> bindings_;  // by serial
  std::map<wire::QpName, Binding*> by_name_;                         // by the local QP
  std::vector<group::Context*> contexts_;
  // Bits per member: the port is up; none of its network devices has a carrier.
  std::unordered_map<const group::Context*, uint8_t> up_, linkless_;
  // The members' addresses. A network device that is not known, or not ours, has the number 0.
  std::unordered_map<const group::Context*, group::PerMember<std::vector<group::PortAddress>>>
      addresses_;
  // Their GIDs that hold no address, and one that each belongs to.
  std::unordered_map<const group::Context*, group::PerMember<std::vector<group::PortName>>> names_;
  // Network devices, by number, and those of them that are deleted: their numbers do not come back,
  // so they are kept only while a member's address is theirs.
  std::set<int> carrierless_, gone_;
  std::map<std::tuple<const group::Context*, wire::Gid, PathName>, Link> links_;
  std::set<uint64_t> fences_due_;  // serials
  bool fences_scheduled_ = false;
  std::vector<std::unique_ptr<RunningFence>> fences_;
  bool fences_polling_ = false;
  std::unordered_map<group::CompletionQueue*, Loop::TimerId> rearm_;
  Loop::TimerId unpolled_timer_ = 0;  // runs while there are such CQs
  // Attempts under way, of all groups, and whose turn is next: who has no path, then the others.
  int attempts_ = 0;
  std::deque<uint64_t> attempts_waiting_;  // serials
  uint32_t next_query_ = 1;
  uint32_t members_sequence_ = 0;
};

}  // namespace shift::control

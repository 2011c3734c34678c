// Runs the failure state machine of every group of this process: it turns completions, device
// events, timers and peers' messages into inputs, and the table's actions into steps of the
// session's parts. All private functions but soon() run on the control loop.
//
// coordinator.cc runs the machine and keeps the sessions; coordinator_actions.cc has one handler
// for each action of the table, coordinator_messages.cc one for each message of a peer, and
// coordinator_nics.cc tells the sessions of NICs that go and come.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "control/fences.h"
#include "control/input.h"
#include "control/jobs.h"
#include "control/late_nics.h"
#include "control/line_budget.h"
#include "control/locator.h"
#include "control/nic_events.h"
#include "control/nic_watch.h"
#include "control/orders.h"
#include "control/peer_presence.h"
#include "control/read_backs.h"
#include "control/reaper.h"
#include "control/receive_turns.h"
#include "control/repeats.h"
#include "control/reporter.h"
#include "control/sessions.h"
#include "control/turns.h"
#include "group/fault_sink.h"
#include "net/network.h"

namespace shift::control {

class Coordinator final : private Machine,
                          public net::Delegate,
                          public group::FaultSink,
                          private NicSink,
                          private NicEventSink,
                          private OrderSink {
 public:
  // `commands` must outlive the coordinator.
  Coordinator(net::Loop& control, group::CommandThreads& commands);
  ~Coordinator() override;
  // Must be called before any other function.
  void network_set(std::unique_ptr<net::PeerNetwork> network);
  // The watch over the NICs of all open contexts and over the network devices of the host.
  NicWatch& nics() { return nics_; }
  Orders& orders() { return orders_; }
  Shares& shares() { return shares_; }
  Reporter& reporter() { return reporter_; }
  Locator& locator() { return locator_; }

  // ---- any thread may call these; their objects live until the matching *_forget() returns

  // A context with further members was opened: its addresses are served and its events are watched
  // from here on. `ports_up`: as the members' NICs have just said.
  void context_add(group::Context* context, const group::PerMember<bool>& ports_up);
  void context_forget(group::Context* context);
  // The queue was ending, and its real CQs could not be destroyed.
  void cq_stays(group::CompletionQueue* cq);
  // The QP reached RTR: its peer is known and can be looked for.
  void group_add(group::Group* group);
  // A QP is about to be connected between these two GIDs: whether SHIFT runs at the address of its
  // peer. Waits for one round trip: 100 ms at most, and a second more for a GID that holds no
  // address.
  bool peer_present(group::Context* context, const wire::Gid& local,
                    const wire::Gid& remote) noexcept {
    return presence_.at(context, local, remote);
  }
  // The QP reached RTS.
  void group_sends(group::Group* group);
  // The application moves the QP to ERR or RESET, or destroys it: none of its errors is masked any
  // more. Waits for the control loop.
  void group_forget(group::Group* group);
  // The group was ending (group/ending.h), and its QP is destroyed. Waits for nothing: the control
  // loop forgets the group later, and has its QPs on the further members destroyed.
  void group_ended(group::Group* group);
  // An object of the application's is gone, and the task destroys what stands for it on the further
  // members. It runs later, on the control loop, behind what was asked for objects that use this
  // one.
  void later(net::Loop::Task task) noexcept;

  // The context has another number of QPs that are not protected.
  void stock_qps_changed(group::Context* context);

  // Keys that peers were told are withdrawn: the peers hear of it. Never waits for the control
  // loop.
  void keys_gone(group::Context* context);

  void fault(group::Group* group, fsm::Event event, int member, group::Cause cause) override;
  void verdict_wanted(group::Group* group, int member) override;
  void pump_wanted(group::Group* group) override;
  void read_back_wanted(group::Group* group) override;
  void read_back_failed(group::Group* group, int member) override;
  void receives_wanted(group::SharedQueue* queue, int member) override;
  void receives_scarce(group::SharedQueue* queue) override;
  void receives_stuck(group::SharedQueue* queue, int member) override;
  void receives_refused(group::SharedQueue* queue, int member) override;

  // Tests and simulations pass a device's event here; otherwise events are read from the devices'
  // descriptors.
  void device_event(group::Context* context, int member, const ibv_async_event& event) {
    events_.take(context, member, event, false);
  }

 private:
  // ---- coordinator.cc: the machine

  void feed(Session& session, const Input& input) override;
  void tend(uint64_t serial);
  void feed_one(Session& session, const Input& input, std::vector<Input>& inputs);
  void enter(Session& session, fsm::State next, std::span<const fsm::Action> actions,
             const Input& input, std::vector<Input>& inputs);
  void fail_impossible(Session& session, const Input& input, const fsm::Cell& cell,
                       std::vector<Input>& inputs);
  // Any thread may call this: the control loop runs `then`, unless the group is gone by then.
  void soon(uint64_t serial, std::function<void(Session&)> then);
  void session_begin(group::Group& group);
  void session_forget(Session& session);

  // ---- coordinator_actions.cc: the table's actions

  // What a handler is given beside the session.
  struct Step {
    const Input& input;
    std::vector<Input>& inputs;  // inputs that follow from this one are put here
    bool is_stopped = false;     // the rest of the cell's actions are not run; an input tells why

    void then(fsm::Event event, group::Cause cause = {}) {
      inputs.push_back(input.then(event, cause));
    }
  };
  void run(Session& session, fsm::Action action, Step& step);

  void do_none(Session& session, Step& step);
  void do_protect(Session& session, Step& step);
  void do_unprotect(Session& session, Step& step);
  void do_park(Session& session, Step& step);
  void do_unpark(Session& session, Step& step);
  void do_watch_drain(Session& session, Step& step);
  void do_leave_drain(Session& session, Step& step);
  void do_send_drain(Session& session, Step& step);
  void do_send_drained(Session& session, Step& step);
  void do_send_drain_cancel(Session& session, Step& step);
  void do_enter_epoch(Session& session, Step& step);
  void do_send_switch(Session& session, Step& step);
  void do_start_fence(Session& session, Step& step);
  void do_arm_deadline(Session& session, Step& step);
  void do_cancel_deadline(Session& session, Step& step);
  void do_seek_path(Session& session, Step& step);
  void do_keep_progress(Session& session, Step& step);
  void do_commit(Session& session, Step& step);
  void do_send_progress(Session& session, Step& step);
  void do_request_keys(Session& session, Step& step);
  void do_replay(Session& session, Step& step);
  void do_fail(Session& session, Step& step);
  void do_send_refuse(Session& session, Step& step);
  void do_send_close(Session& session, Step& step);
  void do_flush_waiting(Session& session, Step& step);
  void do_rebind(Session& session, Step& step);
  void spread(Session& origin);

  using Handler = void (Coordinator::*)(Session& session, Step& step);
  struct Handlers;  // one for each action

  // ---- coordinator_messages.cc: what peers say

  bool knows_qp(const wire::QpName& name) override;
  bool expects(const wire::QpName& own, const wire::QpName& peer) override;
  bool relies_on(const net::PeerChannel* channel) override;
  void on_message(net::PeerChannel* channel, const wire::Message& message) override;
  void on_connection_up(net::PeerChannel* channel, bool alone) override;
  void say_again(const net::PeerChannel* channel);
  void on_channel_down(net::PeerChannel* channel) override;

  Session* addressee(net::PeerChannel* channel, const wire::QpName& from, const wire::QpName& to);
  Session* proven_addressee(net::PeerChannel* channel, const wire::QpName& from,
                            const wire::QpName& to);
  friend struct MessageVisitor;
  void on(net::PeerChannel* channel, const wire::Bind& message);
  void on(net::PeerChannel* channel, const wire::Offer& message);
  void on(net::PeerChannel* channel, const wire::Accept& message);
  void on(net::PeerChannel* channel, const wire::Ready& message);
  void on(net::PeerChannel* channel, const wire::Members& message);
  void on(net::PeerChannel* channel, const wire::Drain& message);
  void on(net::PeerChannel* channel, const wire::Switch& message);
  void on(net::PeerChannel* channel, const wire::Progress& message);
  void on(net::PeerChannel* channel, const wire::KeyQuery& message);
  void on(net::PeerChannel* channel, const wire::KeyReply& message);
  void on(net::PeerChannel* channel, const wire::Refuse& message);
  void on(net::PeerChannel* channel, const wire::Close& message);
  void on(net::PeerChannel* channel, const wire::KeysGone& message);
  void on(net::PeerChannel* channel, const wire::KeysForgotten& message);
  void on(net::PeerChannel* channel, const wire::Avoid& message);
  void on(net::PeerChannel* channel, const wire::Nics& message);
  void on(net::PeerChannel* channel, const wire::Probe& message);
  // net/ itself handles these messages.
  void on(net::PeerChannel*, const wire::Hello&) {}
  void on(net::PeerChannel*, const wire::HelloReply&) {}
  void on(net::PeerChannel*, const wire::Confirm&) {}
  void on(net::PeerChannel*, const wire::GidQuery&) {}
  void on(net::PeerChannel*, const wire::GidAnswer&) {}

  // ---- coordinator_nics.cc: NICs that go and come

  void nic_lost(group::Context* context, int member, group::Cause cause) override;
  void nic_late(group::Context* context, int member) override;
  void nic_back(group::Context* context, int member) override;
  void address_lost(group::Context* context, int member, const wire::Gid& address,
                    group::Cause cause) override;
  void addresses_changed(group::Context* context, int member,
                         const std::vector<wire::Gid>& gone) override;
  bool masks_faults(const group::Context* context) override;
  bool request_refused(group::Context* context, const ibv_async_event& event) override;
  void members_up_changed(group::Context* context);
  void nic_suspected(const std::string& device) override { locator_.suspect(device); }
  void drained_changed(group::Context* context) override { reporter_.context_changed(context); }

  net::Loop& control_;
  std::unique_ptr<net::PeerNetwork> net_;
  NicWatch nics_;
  NicEvents events_;
  PeerPresence presence_;
  NicPairs pairs_;
  Turns turns_, moves_;  // to try a path, and to go to a better one; sessions give theirs back
  Sessions sessions_;
  std::unordered_map<const net::PeerChannel*, uint64_t> reliers_;  // a session that relies on each
  Repeats repeats_;
  ReceiveTurns receive_turns_;
  LateNics late_;
  Jobs jobs_;
  Shares shares_;
  Fences fences_;
  ErrorWatch errors_;
  ReadBacks read_backs_;
  std::vector<Input> inputs_;  // feed()'s, while it does not run
  Lines lines_;
  Orders orders_;
  Reporter reporter_;
  Locator locator_;
  Reaper reaper_;
  std::unique_ptr<Shared> shared_;  // network_set() makes it
};

}  // namespace shift::control

// Runs the failure state machine of every group of this process on the control thread: turns
// completions, device events, timers and peers' messages into fsm events, and the table's actions
// into steps of group/ and messages. feed() is the only place where a state is assigned.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/peer_net.h"
#include "control/reactor.h"
#include "fsm/fsm.h"
#include "group/backup.h"
#include "group/objects.h"

namespace shift::control {

// What the coordinator knows of one group beside its state. Control thread only.
struct Binding {
  group::Group* group = nullptr;
  uint64_t serial = 0;
  Channel* channel = nullptr;
  bool looking = false;  // find_peer is under way
  Reactor::TimerId look_again = 0;

  // Backup QPs: ours made, the peer's known, ours connected, the peer's connected.
  group::BackupAddress own, peer;
  bool own_made = false, peer_known = false, connecting = false, own_connected = false,
       peer_connected = false;

  // The switch under way.
  Reactor::TimerId deadline = 0;
  Reactor::Clock::time_point detected, fenced, give_up;
  const char* cause = "";
  wire::RefuseReason refuse_reason = wire::RefuseReason::kUnknown;
  // Epoch of the peer's message that is being handled: a refusal answers that one, which may be
  // ahead of ours.
  std::optional<uint32_t> answered_epoch;
  uint32_t query_id = 0;
  bool query_pending = false;         // something waits for the answer
  Reactor::TimerId key_deadline = 0;  // for keys wanted after the switch
  uint64_t sent_progress = 0;         // what a repeated Progress must say again
};

class Coordinator final : public Delegate, public group::FaultSink {
 public:
  Coordinator(Reactor& control, Reactor& worker);
  ~Coordinator() override;

  // ---- from any thread, about objects that live at least until the matching *_forget returns

  // A context with a backup was opened: serve its addresses, watch its events.
  void context_add(group::Context* context);
  void context_forget(group::Context* context);
  // Destroys the CQ's real twins; errno.
  int cq_destroy(group::CompletionQueue* cq);
  // The QP reached RTR: its peer is known and can be looked for.
  void group_add(group::Group* group);
  // It reached RTS.
  void group_sends(group::Group* group);
  // The application moves it to ERR or RESET, or destroys it: nothing is masked any more. Waits.
  void group_forget(group::Group* group);

  void fault(group::Group* group, fsm::Event event, const char* cause) override;
  void keys_wanted(group::Group* group) override;

 private:
  // Delegate (control thread)
  bool knows_qp(const wire::QpName& name) override;
  void on_message(Channel* channel, const wire::Message& message) override;
  void on_connection_up(Channel* channel, bool first) override;
  void on_channel_down(Channel* channel) override;

  // coordinator.cc: the machine
  void feed(Binding& binding, fsm::Event event, const char* cause = "");
  // The same for a message of the peer's.
  void feed_answer(Binding& binding, uint32_t epoch, fsm::Event event, const char* cause = "");
  void run(Binding& binding, fsm::Action action, std::deque<fsm::Event>* follow_up);
  void fences_run();
  void request_keys(Binding& binding, std::deque<fsm::Event>* follow_up);
  bool query_keys(Binding& binding);
  void pump(Binding& binding);
  void replay(Binding& binding, std::deque<fsm::Event>* follow_up);
  void give_up(Binding& binding);
  void spread(Binding& origin);
  Binding* find(uint64_t serial);

  // binding.cc: peers and backups
  void look_for_peer(Binding& binding);
  void look_later(Binding& binding, std::chrono::milliseconds pause);
  void make_backup(Binding& binding);
  void send_bind(Binding& binding);
  void connect_backup(Binding& binding);
  void check_bound(Binding& binding);
  bool proof_fits(const Binding& binding, const wire::Bind& bind);
  Binding* addressee(Channel* channel, const wire::QpName& from, const wire::QpName& to);

  void on_bind(Channel* channel, const wire::Bind& message);
  void on_bind_ack(Channel* channel, const wire::BindAck& message);
  void on_switch(Channel* channel, const wire::Switch& message);
  void on_progress(Channel* channel, const wire::Progress& message);
  void on_key_query(Channel* channel, const wire::KeyQuery& message);
  void on_key_reply(Channel* channel, const wire::KeyReply& message);
  void key_denied(Binding& binding);
  void on_refuse(Channel* channel, const wire::Refuse& message);
  void on_close(Channel* channel, const wire::Close& message);
  void refuse(Channel* channel, const wire::QpName& from, const wire::QpName& to, uint32_t epoch,
              wire::RefuseReason reason);

  // watch.cc: device events and CQs nobody polls
  void async_readable(group::Context* context, int member);
  void forward(group::Context* context, const ibv_async_event& event);
  void member_lost(group::Context* context, int member, bool for_good, const char* cause);
  void watch_readable(group::Context* context, int member);
  void watch_arm(Binding& binding);

  Reactor& control_;
  Reactor& worker_;
  std::unique_ptr<PeerNet> net_;

  std::unordered_map<uint64_t, std::unique_ptr<Binding>> bindings_;  // by serial
  std::map<wire::QpName, Binding*> by_name_;                         // by the local QP
  std::vector<group::Context*> contexts_;
  std::vector<uint64_t> fences_due_;
  bool fences_scheduled_ = false;
  std::unordered_map<group::CompletionQueue*, Reactor::TimerId> rearm_;
  uint32_t next_query_ = 1;
};

// The two threads and their coordinator, started with the first protected context of the process
// and never ended: the process's exit ends them. Null when they cannot run.
struct Runtime {
  Reactor control;
  Reactor worker;
  std::unique_ptr<Coordinator> coordinator;
};
Runtime* runtime();

}  // namespace shift::control

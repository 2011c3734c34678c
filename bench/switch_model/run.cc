#include "switch_model/run.h"

#include <stdexcept>
#include <string>

#include "net/test/memory_network.h"
#include "ops/entry.h"
#include "ops/tables.h"

namespace switch_model {

using namespace shift;
using namespace std::chrono_literals;
using Clock = net::Loop::Clock;

namespace {

class Run {
 public:
  explicit Run(const Options& options) : options_(options) {
    group::fault_sink = &sink_;
    sink_.of = {{&a_.world.context, &a_.coordinator}, {&b_.world.context, &b_.coordinator}};
    network_.in_order = true;
    network_.delay = [this] { return options_.message + Thread::elapsed(); };
    carry();
  }
  ~Run() {
    for (Host* host : {&a_, &b_}) host->forget();
    for (Host* host : {&a_, &b_}) host->thread.drop_all();
    commands_.drop_all();
    time_.drop_all();
    group::fault_sink = nullptr;
  }

  Figures figures() {
    b_.connect(a_, 2000, 1000);
    time_.run_for(200ms);  // the leader shall find the others' QPs
    a_.connect(b_, 1000, 2000);
    const auto armed = [](const group::Group& group) {
      return group.real[1] != nullptr && group::World::fake(group.real[1]).qp.state == IBV_QPS_RTS;
    };
    run_until("connecting", armed);
    time_.run_for(100ms);  // the last probes, and notices that wait
    for (Host* host : {&a_, &b_}) post(*host);
    is_switching_ = true;
    const Counts before = now();
    a_.world.nic(0).port_up = false;
    a_.thread.call_soon([this] {
      ibv_async_event event{};
      event.event_type = IBV_EVENT_PORT_ERR;
      event.element.port_num = 1;
      a_.coordinator.device_event(&a_.world.context, 0, event);
    });
    run_until("switching", [](const group::Group& group) {
      return group.life.control.state == fsm::State::kActive && group.life.path.member == 1;
    });
    const Counts after = now();
    return {after.time - before.time,
            {after.control[0] - before.control[0], after.control[1] - before.control[1]},
            after.commands - before.commands,
            after.messages - before.messages,
            after.tasks - before.tasks};
  }

 private:
  struct Counts {
    Clock::time_point time;
    Clock::duration control[2], commands;
    uint64_t messages, tasks;
  };
  Counts now() const {
    return {time_.now(),
            {a_.thread.spent(), b_.thread.spent()},
            commands_.spent(),
            a_.inbox.messages + b_.inbox.messages,
            a_.thread.tasks() + b_.thread.tasks()};
  }

  template <typename Is>
  void run_until(const char* what, const Is& is) {
    const auto give_up = time_.now() + 20s;
    for (Host* host : {&a_, &b_}) {
      for (group::Group* group : host->groups) {
        while (!is(*group)) {
          if (time_.now() > give_up)
            throw std::runtime_error(std::string(what) + " takes for ever");
          time_.step();
        }
      }
    }
  }

  // The second NICs carry probes until the switch. A look at all QPs of the fakes costs the layer
  // what it has in the processor's cache, and real NICs have their queues elsewhere; so what the
  // switch brings stays under way, as does all that the first NICs are given.
  void carry() {
    if (is_switching_) return;
    for (Host* host : {&a_, &b_}) {
      for (auto& [qpn, qp] : host->world.nic(1).qps) {
        if (!qp->in_error() && !qp->pending_sends.empty()) (void)qp->complete_send();
      }
    }
    time_.in(100us, [this] { carry(); });
  }

  // What the application has under way.
  void post(Host& host) {
    for (group::Group* group : host.groups) {
      ibv_sge sge{0x6000, 8, group::kLkey};
      for (int i = 0; i < options_.receives; i++) {
        ibv_recv_wr wr{static_cast<uint64_t>(i), nullptr, &sge, 1}, *bad;
        if (ops::post_recv(group->handle(), &wr, &bad) != 0)
          throw std::runtime_error("a receive is refused");
      }
      for (int i = 0; i < options_.sends; i++) {
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        if (ops::post_send(group->handle(), &wr, &bad) != 0)
          throw std::runtime_error("a request is refused");
      }
    }
  }

  const Options& options_;
  bool is_switching_ = false;
  net::VirtualTime time_;
  net::MemoryNetwork network_{time_};
  Sink sink_;
  Commands commands_{time_, options_.command};
  Host a_{time_, network_, commands_, 1, options_}, b_{time_, network_, commands_, 2, options_};
};

}  // namespace

Figures switch_run(const Options& options) {
  return Run(options).figures();
}

}  // namespace switch_model

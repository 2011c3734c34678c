// switch-model tells how long the switch of many QPs takes in the layer's own code: two hosts with
// fake NICs, where each thread of the layer has a processor of its own. What a thread does takes as
// long as it takes on this machine; a NIC's commands, and messages between the hosts, take as long
// as the options say. It prints JSON.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "ops/entry.h"
#include "ops/tables.h"
#include "switch_model/host.h"
#include "util/log.h"

namespace {

using namespace shift;
using namespace switch_model;
using namespace std::chrono_literals;
using nlohmann::json;
using Clock = net::Loop::Clock;

[[noreturn]] void fail(const std::string& message) {
  fprintf(stderr, "switch-model: %s\n", message.c_str());
  exit(1);
}

double us(Clock::duration span) {
  return std::chrono::duration<double, std::micro>(span).count();
}

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

  json figures() {
    b_.connect(a_, 2000, 1000);
    time_.run_for(200ms);  // the leader shall find the others' QPs
    a_.connect(b_, 1000, 2000);
    const auto armed = [](const group::Group& group) {
      return group.real[1] != nullptr && group::World::fake(group.real[1]).qp.state == IBV_QPS_RTS;
    };
    run_until("connecting", armed);
    time_.run_for(100ms);  // the last probes, and notices that wait
    for (Host* host : {&a_, &b_}) post(*host);
    const Figures before = now();
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
    const Figures after = now();
    return {{"all_us", us(after.time - before.time)},
            {"control_us", {us(after.a - before.a), us(after.b - before.b)}},
            {"commands_us", us(after.commands - before.commands)},
            {"messages", after.messages - before.messages},
            {"tasks", after.tasks - before.tasks}};
  }

 private:
  struct Figures {
    Clock::time_point time;
    Clock::duration a, b, commands;
    uint64_t messages, tasks;
  };
  Figures now() const {
    return {time_.now(),
            a_.thread.spent(),
            b_.thread.spent(),
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
          if (time_.now() > give_up) fail(std::string(what) + " takes for ever");
          time_.step();
        }
      }
    }
  }

  // The second NICs carry what they are given; nothing but probes comes before the switch. What the
  // first NICs are given stays under way.
  void carry() {
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
        if (ops::post_recv(group->handle(), &wr, &bad) != 0) fail("a receive is refused");
      }
      for (int i = 0; i < options_.sends; i++) {
        ibv_send_wr wr{}, *bad;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        if (ops::post_send(group->handle(), &wr, &bad) != 0) fail("a request is refused");
      }
    }
  }

  const Options& options_;
  net::VirtualTime time_;
  net::MemoryNetwork network_{time_};
  Sink sink_;
  Commands commands_{time_, options_.command};
  Host a_{time_, network_, commands_, 1, options_}, b_{time_, network_, commands_, 2, options_};
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int repeat = 3, command_us = 1, message_us = 30;
  std::string events;
  CLI::App app("How long the layer's own code takes for the switch of many QPs");
  app.add_option("--qps", options.qps, "queue pairs between the hosts");
  app.add_option("--receives", options.receives, "posted on each, at both ends");
  app.add_option("--sends", options.sends, "under way on each, at both ends");
  app.add_flag("--shared-cq", options.shares_cq, "one completion queue for all");
  app.add_option("--command-us", command_us, "what a NIC takes for a command");
  app.add_option("--message-us", message_us, "what a message takes to the other host");
  app.add_option("--events", events, "write event records to FILE");
  app.add_option("--repeat", repeat, "switches, each with new hosts");
  CLI11_PARSE(app, argc, argv);
  options.command = std::chrono::microseconds(command_us);
  options.message = std::chrono::microseconds(message_us);
  if (!events.empty() && events_open(events.c_str()) != nullptr) fail("cannot open " + events);
  log_set_level(LogLevel::kError);
  char folder[] = "/tmp/switch-model-XXXXXX";
  if (mkdtemp(folder) == nullptr) fail("cannot make a folder in /tmp");
  options.board = folder;
  json runs = json::array();
  for (int i = 0; i < repeat; i++) runs.push_back(Run(options).figures());
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  printf("%s\n", json{{"qps", options.qps}, {"runs", runs}}.dump().c_str());
  return 0;
}

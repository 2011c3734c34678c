// A host of the model: fake NICs, the layer's coordinator, and a thread for it and for each NIC.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/coordinator.h"
#include "group/test/fake.h"
#include "net/test/memory_network.h"
#include "state/board.h"
#include "switch_model/thread.h"

namespace switch_model {

using std::chrono::nanoseconds;

struct Options {
  int qps = 1000;
  int receives = 8;                                    // of each QP, at both ends
  int sends = 1;                                       // of each QP, under way when the NIC breaks
  bool shares_cq = false;                              // all QPs of a host use one CQ
  nanoseconds command = std::chrono::microseconds(1);  // what a NIC takes for one
  nanoseconds message = std::chrono::microseconds(30);
  std::string board;  // the folder of the processes' notices; empty: none
};

// The command threads of all NICs of all hosts.
class Commands final : public shift::group::CommandThreads {
 public:
  Commands(shift::net::VirtualTime& time, nanoseconds command) : time_(time), command_(command) {}

  int nic_add();
  nanoseconds spent() const;
  void drop_all();

  int number_of(const char*) override { return 0; }
  bool run(int nic, Task task, nanoseconds) noexcept override {
    return nics_[static_cast<size_t>(nic)].call_soon(std::move(task));
  }
  Waited run_and_wait(int, Task task) noexcept override { return task(), Waited::kDone; }
  bool is_late(int) const noexcept override { return false; }
  bool is_slow(int) const noexcept override { return false; }
  bool in_thread() const noexcept override { return false; }
  bool is_busy(int) const noexcept override { return false; }

 private:
  shift::net::VirtualTime& time_;
  const nanoseconds command_;
  std::deque<Thread> nics_;
};

// Hands a host's messages to its control thread, which may have other work.
class Inbox final : public shift::net::Delegate {
 public:
  Inbox(shift::net::Delegate& to, Thread& thread) : to_(to), thread_(thread) {}

  bool knows_qp(const shift::wire::QpName& name) override { return to_.knows_qp(name); }
  bool expects(const shift::wire::QpName& own, const shift::wire::QpName& peer) override {
    return to_.expects(own, peer);
  }
  bool relies_on(const shift::net::PeerChannel* channel) override { return to_.relies_on(channel); }
  void on_message(shift::net::PeerChannel* channel, const shift::wire::Message& message) override {
    messages++;
    thread_.call_soon([this, channel, message] { to_.on_message(channel, message); });
  }
  void on_channel_down(shift::net::PeerChannel* channel) override { to_.on_channel_down(channel); }

  uint64_t messages = 0;

 private:
  shift::net::Delegate& to_;
  Thread& thread_;
};

struct Host {
  Host(shift::net::VirtualTime& time, shift::net::MemoryNetwork& network, Commands& commands,
       uint8_t net, const Options& options);

  void connect(const Host& peer, uint32_t sq_psn, uint32_t rq_psn);
  void forget();

  shift::group::World world;
  Thread thread;
  shift::state::Board board;
  shift::control::Coordinator coordinator;
  Inbox inbox{coordinator, thread};
  std::vector<shift::group::Group*> groups;
};

// The layer has one sink in a process, and this one has two hosts.
struct Sink final : shift::group::FaultSink {
  std::map<const shift::group::Context*, shift::group::FaultSink*> of;

  void fault(shift::group::Group* group, shift::fsm::Event event, int member,
             shift::group::Cause cause) override;
  void verdict_wanted(shift::group::Group* group, int member) override;
  void pump_wanted(shift::group::Group* group) override;
};

}  // namespace switch_model

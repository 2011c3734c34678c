// Two applications and what they were promised: each posts numbered requests into the layer, and
// the judge, who also sees what the NICs execute, compares every completion and every write with
// docs/protocol.md. Shares no knowledge with the layer beyond the verbs.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "control/test/host.h"
#include "sim/rc_fabric.h"
#include "sim/schedule.h"

namespace shift::sim {

class Judge final : public Observer {
 public:
  // `number`: of the pair of QPs that it judges, which tells its memory from that of the others.
  Judge(VirtualTime& time, uint64_t number) : time_(time), memory_base_(number << 40) {}
  void group_set(int host, group::Group& group) { at(host).group = &group; }

  void send(int host, const AppPlan::Send& plan);
  void receive(int host);
  // A completion that it has polled.
  void take(int host, const ibv_wc& wc);
  // Is there anything to poll? (The application would be woken, or looks all the time.)
  bool has_completions(int host) const;
  // Its process is gone, or has destroyed its QP: nothing is promised to it any more.
  void host_gone(int host) { at(host).gone = true; }

  // No NIC of it can be kept from placing data.
  void host_unfenced(int host) { at(host).unfenced = true; }

  bool is_broken() const { return !verdict_.empty(); }
  const std::string& verdict() const { return verdict_; }
  void fail(std::string what);

  // Everything posted has completed well.
  bool is_done(int host) const;
  // Its sends have ended one way or the other.
  bool is_over(int host) const;
  // An end has taken its path for broken: what was posted before may run again.
  void path_fault_noted() { path_faults_++; }
  // An atomic did not end well, and its path broke.
  bool has_atomic_open(int host) const;
  size_t sends_posted(int host) const { return at(host).sends.size(); }
  size_t receives_posted(int host) const { return at(host).receives; }
  size_t notifications_posted(int host) const { return at(host).notifications.size(); }

  // Observer
  void fault_seen(const char* rule, const Packet* packet, int host, int member) override;
  uint64_t executed(const Packet& packet, const group::PostedRecv* receive) override;
  uint64_t read_again(const Packet& packet) override;
  void data_came(const Packet& packet, uint64_t data) override;

 private:
  static constexpr uint32_t kBlocks = AppPlan::kLengthMax / kMtu + 1;
  struct Sent {
    ibv_wr_opcode opcode;
    bool signaled;
    uint8_t slot;
    uint32_t length;
    uint64_t path_faults;     // when it was posted
    uint32_t blocks_run = 0;  // of kMtu bytes, each at least once
    bool executed = false;
    bool data_came = false;
    uint64_t found = 0;     // by an atomic
    bool too_late = false;  // posted when the QP had failed: flushed, as on any QP in ERR
  };
  struct App {
    group::Group* group = nullptr;
    bool gone = false, unfenced = false;
    std::vector<Sent> sends;              // request n at n - 1
    std::vector<uint32_t> notifications;  // the n-th one's number
    size_t next_done = 0;                 // the next signaled request to complete, from 0
    uint32_t ran = 0;                     // requests up to this one were executed
    uint32_t notified = 0;                // notifications executed
    size_t receives = 0, received = 0;
    uint32_t seen = 0;  // the peer's request whose notification was polled last
    uint64_t first_error = 0, last_error = 0;
    bool receives_failed = false;
    // The request that wrote each block last.
    std::array<std::array<uint32_t, kBlocks>, AppPlan::kSlots> memory{};
    uint64_t counter = 0;                  // for atomics
    std::vector<uint32_t> receive_memory;  // the same of each receive's buffer
  };

  App& at(int host) { return apps_[static_cast<size_t>(host)]; }
  const App& at(int host) const { return apps_[static_cast<size_t>(host)]; }
  void write(const Packet& packet, uint32_t number, uint32_t block);
  void notify(const Packet& packet, uint32_t number, const group::PostedRecv& receive);
  bool is_in_memory(const App& app, const Sent& sent, uint32_t number) const;
  void take_error(int host, const ibv_wc& wc);
  void take_send(int host, const ibv_wc& wc);
  void take_receive(int host, const ibv_wc& wc);

  uint64_t source_of(uint64_t number) const { return memory_base_ + 0x1000000 + number * 0x10000; }
  uint64_t slot_address(uint8_t slot) const {
    return memory_base_ + 0x100000 + slot * uint64_t{0x10000};
  }
  uint64_t buffer_of(uint64_t receive) const { return memory_base_ + 0x10000 + receive; }

  VirtualTime& time_;
  const uint64_t memory_base_;
  std::array<App, 2> apps_;
  uint64_t path_faults_ = 0;
  std::string verdict_;
};

}  // namespace shift::sim

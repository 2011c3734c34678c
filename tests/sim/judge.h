// Two applications, and the judge of what they get. Each application posts numbered requests into
// the layer. The judge sees also what the NICs execute, and compares every completion and every
// write with docs/protocol.md. It shares no knowledge with the layer beyond the verbs.
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
  // `number` is that of the judged pair of QPs; each number has its own memory addresses.
  explicit Judge(uint64_t number) : memory_base_(number << 40) {}
  void group_set(int host, group::Group& group) { at(host).group = &group; }

  void send(int host, const AppPlan::Send& plan);
  void receive(int host);
  // Judges a completion that the application of `host` has polled.
  void take(int host, const ibv_wc& wc);
  // Whether there is anything to poll. (The application is woken, or polls all the time.)
  bool has_completions(int host) const;
  // The process is gone or has destroyed its QP, so nothing is promised to it any more.
  void host_gone(int host) { at(host).gone = true; }

  // A NIC of this host does not tell any more how far its responders got.
  void host_silent(int host) { at(host).silent = true; }
  // A NIC of this host cannot be fenced, so it may go on placing data.
  void host_unfenced(int host) { at(host).unfenced = true; }

  bool is_broken() const { return !verdict_.empty(); }
  const std::string& verdict() const { return verdict_; }
  void fail(std::string what);

  // Whether everything that was posted has completed with success.
  bool is_done(int host) const;
  // Whether all sends have completed or failed.
  bool is_over(int host) const;
  // An end has found its path broken, so what was posted before may run again.
  void path_fault_noted() { path_faults_++; }
  // Whether an atomic did not succeed whose path broke.
  bool has_atomic_open(int host) const;
  size_t sends_posted(int host) const { return at(host).sends.size(); }
  size_t receives_posted(int host) const { return at(host).receives; }
  size_t notifications_posted(int host) const { return at(host).notifications.size(); }

  // The functions of Observer follow.
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
    uint64_t path_faults;     // their number when the request was posted
    uint32_t blocks_run = 0;  // how many blocks of kMtu bytes ran at least once
    bool executed = false;
    bool data_came = false;
    uint64_t found = 0;     // what an atomic found
    bool too_late = false;  // it was posted after the QP failed, so it is flushed
  };
  struct App {
    group::Group* group = nullptr;
    bool gone = false, silent = false, unfenced = false;
    std::vector<Sent> sends;              // request n is at n - 1
    std::vector<uint32_t> notifications;  // the request number of each
    size_t next_done = 0;                 // index of the next signaled request to complete
    uint32_t ran = 0;                     // requests up to this one were executed
    uint32_t notified = 0;                // how many notifications were executed
    size_t receives = 0, received = 0;
    uint32_t seen = 0;  // the peer's request whose notification was polled last
    uint64_t first_error = 0, last_error = 0;
    bool receives_failed = false;
    // For each block, the request that wrote it last.
    std::array<std::array<uint32_t, kBlocks>, AppPlan::kSlots> memory{};
    uint64_t counter = 0;                  // what atomics add to
    std::vector<uint32_t> receive_memory;  // what each receive's buffer holds
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

  const uint64_t memory_base_;
  std::array<App, 2> apps_;
  uint64_t path_faults_ = 0;
  std::string verdict_;
};

}  // namespace shift::sim

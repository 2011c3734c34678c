// What the NIC model's tests share: two or more emulated processes inside one process, in virtual
// time, over an in-memory wire that can lose, double and reorder packets by a seed; and an
// application side that lays out rings and reads completions as libmlx5 does.
#pragma once

#include <infiniband/verbs.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fabric/fault.h"
#include "nic/engine_core.h"

namespace cxemu::test {

class VirtualClock final : public Clock {
 public:
  uint64_t now_ns() override { return now_ns_; }
  void advance(uint64_t ns) { now_ns_ += ns; }

 private:
  uint64_t now_ns_ = 5'000'000'000;
};

// Connects the carriers of all processes of a test.
class MemoryNet {
 public:
  struct Frame {
    uint32_t src, dst;
    std::vector<uint8_t> packet;
    bool corrupt = false;
  };
  // Decides how many copies of a packet arrive (0: it is lost).
  using Filter = std::function<int(const Packet&)>;

  explicit MemoryNet(uint64_t seed) : random_(seed) {}
  std::unique_ptr<Carrier> carrier(int slot);
  // Delivers a packet that no carrier sent, bypassing the filter.
  void inject(int slot, Frame frame) {
    queues_[static_cast<size_t>(slot)].push_back(std::move(frame));
  }

  double loss = 0, duplication = 0, reordering = 0;  // probability per packet
  double delaying = 0, corruption = 0;               // per packet; delayed ones come much later
  Filter filter;                                     // asked first, if set
  std::function<bool(const Packet&)> damage;         // whether the packet's ICRC breaks, if set
  size_t room = 1 << 20;  // packets in flight to one process before back-pressure
  uint64_t carried = 0, delivered = 0, corrupted = 0;  // `corrupted`: wrong ICRC
  // Number of packets in flight to all processes.
  size_t in_flight() const;

 private:
  class Port;
  void send(int slot, Frame frame);
  bool chance(double probability);
  // Releases the delayed packets that are due; time is counted in calls.
  void delayed_release(size_t slot);

  struct Delayed {
    uint64_t due;
    Frame frame;
  };
  std::mt19937_64 random_;
  std::vector<std::deque<Frame>> queues_{kMaxProcesses + 1};
  std::vector<std::vector<Delayed>> delayed_{kMaxProcesses + 1};
  std::vector<uint64_t> calls_ = std::vector<uint64_t>(kMaxProcesses + 1);
};

class Events final : public EventSink {
 public:
  void completion(uint64_t cq, int) override { completions.push_back(cq); }
  void async_event(ibv_event_type type, uint64_t element) override {
    async.push_back({type, element});
  }

  struct Async {
    ibv_event_type type;
    uint64_t element;
    bool operator==(const Async&) const = default;
  };
  std::vector<uint64_t> completions;
  std::vector<Async> async;
};

struct Completion {
  CqeOpcode opcode;
  uint8_t syndrome, vendor, wqe_opcode;
  uint16_t wqe_counter;
  uint32_t qpn, uidx, byte_count, imm_be;
  uint32_t remote_qpn;
  bool grh;
  bool operator==(const Completion&) const = default;
};

// The application's end of a completion queue.
class TestCq {
 public:
  TestCq(Nic& nic, EventSink& sink, uint32_t cqe_count = 4096, int channel = -1,
         uint32_t cqe_size = 64);
  std::optional<Completion> poll();
  std::vector<Completion> drain();
  void arm(bool solicited_only);
  // Does what the library does after it has taken the event.
  void event_taken() { arm_sn_++; }

  Cq* cq = nullptr;
  static constexpr uint64_t kUserHandle = 0xc0ffee;

 private:
  std::vector<uint8_t> buffer_;
  alignas(8) volatile uint32_t db_[2] = {};
  uint32_t count_, size_;
  uint32_t consumer_ = 0;
  uint32_t arm_sn_ = 0;
};

struct Sge {
  const void* address;
  uint32_t length;
  uint32_t lkey;
};

struct SendWr {
  uint8_t opcode = kWqeSend;
  std::vector<Sge> sges;
  bool signaled = true;
  bool solicited = false;
  bool fence = false;
  bool inline_data = false;
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint32_t imm_be = 0;
  uint64_t swap_or_add = 0, compare = 0;
  // UD
  uint32_t dest_qpn = 0, qkey = 0;
  ibv_gid gid = {};
  int sgid_index = 3;
  // XRC
  uint32_t srqn = 0;
};

// A request to bind a memory window or, with length 0, to end its binding.
struct WindowWr {
  bool type2 = true;
  uint32_t window_key = 0;
  uint8_t variant = 0;
  uint32_t region_key = 0;
  uint64_t address = 0, length = 0;
  uint64_t iova = 0;
  uint8_t rights = 0;  // as in a KeySegment
};

struct QpOptions {
  uint32_t sq_blocks = 256;
  uint32_t rq_wqes = 256;
  uint32_t pd = 1;
  ibv_qp_type type = IBV_QPT_RC;
  Srq* srq = nullptr;
  uint32_t xrcd = 0;
};

struct SrqOptions {
  uint32_t wqe_count = 8;
  uint32_t pd = 1;
  Cq* cq = nullptr;  // XRC
  uint32_t xrcd = 0;
};

// The application's end of a shared receive queue.
class TestSrq {
 public:
  TestSrq(Nic& nic, EventSink& sink, const SrqOptions& options = {});
  // Fills the next free entry, rings the doorbell, and returns the entry's index.
  uint16_t post(const std::vector<Sge>& sges);
  // A completion gave the entry back, so it goes after the last free entry.
  void free(uint16_t index);
  // For tests of malformed links.
  void link(uint16_t index, uint16_t next);
  void ring(uint16_t counter) { db_ = htobe32(counter); }
  uint32_t number() const { return nic_.srq_number(srq); }

  Srq* srq = nullptr;
  static constexpr uint64_t kUserHandle = 0x5e0;
  static constexpr uint32_t kUidx = 0x99;

 private:
  uint8_t* entry(uint16_t index) { return buffer_.data() + size_t{index} * 64; }

  Nic& nic_;
  std::vector<uint8_t> buffer_;
  alignas(8) volatile uint32_t db_ = 0;
  uint16_t head_ = 0, tail_, counter_ = 0;
};

// The application's end of a queue pair.
class TestQp {
 public:
  TestQp(Nic& nic, EventSink& sink, TestCq& send_cq, TestCq& recv_cq,
         const QpOptions& options = {});

  // Writes the WQE and rings the doorbell; returns the WQE's first block.
  uint16_t post_send(const SendWr& wr);
  uint16_t post_window(const WindowWr& wr);
  void post_recv(const std::vector<Sge>& sges);
  // For tests of malformed entries.
  uint8_t* block(uint16_t index) { return sq_.data() + (index % options_.sq_blocks) * 64; }
  void ring_send(uint16_t producer) { db_[1] = htobe32(producer); }
  void reset_indices();

  int modify(const ibv_qp_attr& to, int mask) { return nic.qp_modify(qp, to, mask); }
  int to_init(uint32_t access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                IBV_ACCESS_REMOTE_ATOMIC);
  int to_state(ibv_qp_state state);
  int destroy() { return nic.qp_destroy(std::exchange(qp, nullptr)); }
  ibv_qp_attr query() const;
  uint32_t number() const { return nic.qp_number(qp); }
  uint16_t producer() const { return sq_next_; }
  ibv_qp_type type() const { return options_.type; }

  Nic& nic;
  Qp* qp = nullptr;
  // Used by connect(); a test may change it before.
  ibv_qp_attr attr = {};
  int gid_index = 3;
  static constexpr uint64_t kUserHandle = 0xabcd;
  static constexpr uint32_t kUidx = 0x77;

 private:
  // The segment in which the service says where the message goes.
  std::vector<uint8_t> service_segment(const SendWr& wr) const;
  // Writes a WQE whose first segment this function fills in.
  uint16_t post(const std::vector<uint8_t>& segments, CtrlSegment ctrl, uint8_t opcode);

  QpOptions options_;
  std::vector<uint8_t> sq_, rq_;
  alignas(8) volatile uint32_t db_[2] = {};
  uint16_t sq_next_ = 0, rq_next_ = 0;
};

// One process on one host with the host's first NIC (nic_open opens more).
struct Process {
  Process(FabricFile& fabric, MemoryNet& net, Clock& clock, int slot, FabricNic& nic,
          const EngineTuning& tuning);

  Events events;
  std::unique_ptr<Carrier> carrier;
  EngineCore core;
  FabricNic& fabric_nic;
  std::unique_ptr<Nic> nic;
};

// Memory registered on a NIC.
struct TestMr {
  TestMr(Nic& nic, size_t size,
         uint32_t access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                           IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
         uint32_t pd = 1);
  std::vector<uint8_t> bytes;
  uint32_t key = 0;
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes.data()); }
  Sge sge(size_t offset, uint32_t length) const { return {bytes.data() + offset, length, key}; }
};

// Two processes on two hosts, one NIC each.
class Rig {
 public:
  explicit Rig(uint64_t seed = 1, const EngineTuning& tuning = tuning_default());
  static EngineTuning tuning_default();

  // Moves both to RTS with their `attr` members.
  void connect(TestQp& a, TestQp& b);
  // Moves a UD queue pair to RTS.
  static void start_datagrams(TestQp& qp, uint32_t qkey);
  // Runs one pass of all processes, then lets `step_ns` pass.
  void step(uint64_t step_ns = 1000);
  // Steps until done() is true or the limit is reached; returns whether done() was true.
  bool run_until(const std::function<bool()>& done, uint64_t limit_ns = 10'000'000'000,
                 uint64_t step_ns = 1000);
  void run_for(uint64_t ns, uint64_t step_ns = 1000);
  void fault_set(FabricNic& nic, uint32_t faults);
  // Sets a fault in the words of `cxemu fault`. The hosts are "a" and "b".
  void fault(FabricNic& nic, const std::string& text);

  std::unique_ptr<FabricFile> fabric;
  VirtualClock clock;
  MemoryNet net;
  Process a, b;
};

// The path MTU, where a test chooses no other.
constexpr uint32_t kMtu = 1024;

// A connected pair of QPs with a CQ each. The NIC lives longer and must not read their rings after
// that.
struct Pair {
  explicit Pair(Rig& rig, uint32_t mtu = kMtu, const QpOptions& options = {},
                const std::function<void(TestQp&, TestQp&)>& prepare = {});
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  TestCq a_cq, b_cq;
  TestQp a, b;
};

}  // namespace cxemu::test

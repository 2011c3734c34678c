// One direction of a connection in a campaign: what its sender is to do, what it did, and what the
// result must be.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "rig.h"

namespace cxemu::test {

using Random = std::mt19937_64;

// Keeps the first problem that was found.
class Judge {
 public:
  bool ok() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }
  // Returns `right`. The arguments are joined only if it is false.
  template <typename... Args>
  bool check(bool right, const Args&... args) {
    if (!right && ok()) {
      ((problem_ += text(args)), ...);
    }
    return right;
  }

 private:
  static std::string text(const char* value) { return value; }
  static std::string text(const std::string& value) { return value; }
  template <typename T>
  static std::string text(const T& value) {
    return std::to_string(value);
  }
  std::string problem_;
};

// Registered memory from which regions are taken and given back in order. It remembers what it must
// contain, so that every wrong write is found.
class Arena {
 public:
  struct Region {
    uint32_t offset = 0, size = 0;
    uint64_t end = 0;
  };
  Arena(Nic& nic, size_t size, Random& random);

  std::optional<Region> take(uint32_t size);
  void give_back(const Region& region) { tail_ = region.end; }
  // Writes bytes there as the application.
  void fill(const Region& region, const std::vector<uint8_t>& bytes);
  // Accepts what the NIC may have written there as right from now on.
  void accept(const Region& region);
  bool intact(const Region& region, uint32_t from = 0) const;
  bool intact() const { return mr.bytes == must_; }

  TestMr mr;

 private:
  static constexpr uint32_t kGuard = 16;  // bytes between regions, which must not change
  std::vector<uint8_t> must_;
  uint64_t head_ = 0, tail_ = 0;
};

// One message, planned before the round begins, so that both ends know it.
struct Plan {
  struct Piece {
    uint32_t offset, length;
  };
  uint8_t opcode = kWqeNop;
  uint32_t size = 0;
  std::vector<Piece> pieces;  // of the source; for READs and receives only the lengths matter
  bool signaled = true, fence = false, solicited = false, is_inline = false;
  uint32_t imm_be = 0;
  uint32_t remote_offset = 0;  // READs
  uint32_t word = 0;           // atomics
  uint64_t swap_or_add = 0, compare = 0;
  uint32_t receive_room = 0;  // beyond the message's size
  std::vector<uint32_t> receive_lengths;

  bool is_send() const { return opcode == kWqeSend || opcode == kWqeSendImm; }
  bool is_write() const { return opcode == kWqeWrite || opcode == kWqeWriteImm; }
  bool is_atomic() const { return opcode == kWqeFetchAdd || opcode == kWqeCompareSwap; }
  bool takes_receive() const { return is_send() || opcode == kWqeWriteImm; }
};

struct FlowOptions {
  uint32_t messages = 0;
  uint32_t mtu = 1024;
  bool may_fail = false;
};

class Flow {
 public:
  // All flows towards one side share one word, and every flow increments it.
  struct SharedWord {
    explicit SharedWord(Nic& nic) : mr(nic, 8) {}
    TestMr mr;
    std::vector<uint64_t> originals;
    uint64_t posted = 0;
    uint64_t value() const;
  };
  static constexpr uint32_t kMaxSize = 64 << 10;

  Flow(Judge& judge, Random& random, const FlowOptions& options, TestQp& from, TestQp& to,
       SharedWord& shared);

  // Posts what is planned, at most `count`, as far as there is room.
  void send(uint32_t count);
  void receive(uint32_t count);
  // Posts to a dead QP; the WQEs must be flushed.
  void send_in_vain();

  // Completions of the sender's and of the receiver's QP.
  void sent(const Completion& completion);
  void received(const Completion& completion);

  bool all_done() const { return next_ == plans_.size() && in_flight_.empty(); }
  bool failed() const { return failed_; }
  // The application moves the QPs to ERR, and what is left is flushed.
  void stop() { stopping_ = true; }
  // Nothing will come any more: judges what is left.
  void finish();

  uint64_t messages() const { return next_; }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Op {
    const Plan* plan;
    uint16_t index;
    Arena::Region region;  // of target_ or fetched_
    uint64_t original;     // atomics: what must be returned
    uint32_t take;         // which receive it takes
    bool signaled;
  };
  struct Receive {
    const Plan* plan;
    Arena::Region region;
  };

  Plan plan_make();
  std::vector<uint8_t> payload(const Plan& plan) const;
  bool post_one(const Plan& plan);
  bool remote_prepare(const Plan& plan, Op* op, SendWr* wr);
  void op_succeeded(const Op& op);
  void write_judge(const Op& op);
  void fetched_judge(const Op& op);
  void leftovers_judge();
  void words_judge();
  std::string where(const Op& op) const;

  Judge& judge_;
  Random& random_;
  const FlowOptions options_;
  TestQp& from_;
  TestQp& to_;
  SharedWord& shared_;

  static constexpr uint32_t kSource = 1 << 18;
  static constexpr uint32_t kWords = 4;
  Arena source_;    // never changes
  Arena fetched_;   // results of READs and atomics
  Arena target_;    // of WRITEs
  Arena inbox_;     // of receives
  Arena readable_;  // never changes
  TestMr words_;    // of atomics
  std::vector<uint64_t> word_values_ = std::vector<uint64_t>(kWords);  // after all that was posted

  std::vector<Plan> plans_;
  std::vector<const Plan*> takers_;  // those that take a receive
  size_t next_ = 0;                  // plan to post
  uint32_t takes_posted_ = 0, receives_posted_ = 0, receives_done_ = 0;
  uint32_t unsignaled_ = 0;
  std::deque<Op> in_flight_;
  std::vector<Op> lost_;  // flushed or failed: may or may not have been executed
  std::deque<Receive> receives_;
  bool stopping_ = false, failed_ = false, flushing_ = false, receives_flushing_ = false;
  uint64_t bytes_ = 0;
};

}  // namespace cxemu::test

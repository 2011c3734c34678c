// A NIC of two members without hardware, for tests of the virtual objects: CQs give the completions
// a test puts into them, QPs remember what is posted, and the stock library is a table of fakes.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "group/completion.h"
#include "group/objects.h"
#include "group/path_switch.h"

namespace shift::group {

struct FakeCq {
  ibv_cq cq{};  // first: the fake entry points get a pointer to it
  std::deque<ibv_wc> waiting;
  int notify_requests = 0;
  int last_notify_solicited = -1;
};

// A posted request with copies of all it points to.
struct PostedSend {
  ibv_send_wr wr;
  std::vector<ibv_sge> sges;
};
struct PostedRecv {
  uint64_t wr_id;
  std::vector<ibv_sge> sges;
};

struct FakeQp {
  ibv_qp qp{};
  FakeCq* send_cq = nullptr;
  FakeCq* recv_cq = nullptr;
  std::vector<PostedSend> sends;  // all ever posted
  std::vector<PostedRecv> recvs;
  struct Pending {
    uint64_t wr_id;
    bool signaled;
    ibv_wc_opcode opcode;
  };
  std::deque<Pending> pending_sends;  // not completed
  bool all_signaled = false;
  std::deque<uint64_t> pending_recvs;
  int modify_error = 0;            // what modify_qp answers
  int post_error = 0;              // what posting answers
  int sends_accepted = INT32_MAX;  // then posting answers ENOMEM
  bool flushes = true;             // in ERR: a dead device gives no completions

  bool in_error() const { return qp.state == IBV_QPS_ERR; }
  // Completes the oldest pending send that is signaled, and those before it; false: none.
  bool complete_send();
  bool complete_recv(uint32_t byte_len = 8);
  // Completes the oldest pending send with an error; everything behind it is flushed.
  void break_with(ibv_wc_status status);
  void flush();
};

// Records what the data path tells the control thread.
struct FakeSink final : FaultSink {
  struct Fault {
    Group* group;
    fsm::Event event;
    std::string cause;
  };
  std::vector<Fault> faults;
  int keys_wanted_calls = 0;

  void fault(Group* group, fsm::Event event, const char* cause) override {
    faults.push_back({group, event, cause});
  }
  void keys_wanted(Group*) override { keys_wanted_calls++; }
};

// One context with both members, one PD, and whatever CQs and groups the test makes.
class World {
 public:
  World();
  ~World();

  CompletionQueue* make_cq();
  struct Options {
    uint32_t depth = 16;
    uint32_t max_sge = 2;
    uint32_t max_inline = 64;
    bool all_signaled = false;
    bool guarded = true;  // as when armed
  };
  Group* make_group(CompletionQueue* send_cq, CompletionQueue* recv_cq, const Options& options);
  Group* make_group(CompletionQueue* cq) { return make_group(cq, cq, Options{}); }

  // A region whose backup registration has ended this way.
  MemoryRegion* make_region(uint32_t lkey, uint32_t rkey,
                            MemoryRegion::Backup backup = MemoryRegion::Backup::kReady);

  static FakeCq& fake(ibv_cq* cq) { return *reinterpret_cast<FakeCq*>(cq); }
  static FakeQp& fake(ibv_qp* qp) { return *reinterpret_cast<FakeQp*>(qp); }
  static FakeCq& fake(CompletionQueue* cq, int member) { return fake(cq->real[member]); }
  static FakeQp& fake(Group* group, int member) { return fake(group->real[member]); }

  Context context;
  ProtectionDomain pd;
  FakeSink sink;

 private:
  Device device_{};
  std::array<ibv_device, kMembers> real_devices_{};
  std::array<ibv_context, kMembers> real_contexts_{};
  std::vector<std::unique_ptr<CompletionQueue>> cqs_;
  std::vector<std::unique_ptr<FakeCq>> fake_cqs_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<FakeQp>> fake_qps_;
  std::vector<std::unique_ptr<MemoryRegion>> regions_;
  std::vector<std::unique_ptr<ibv_mr>> fake_mrs_;
  uint32_t next_qpn_ = 0x100;
};

// What an application does, straight through the default path as the hot path would.
void post_send(Group& group, const ibv_send_wr& wr);
void post_recv(Group& group, uint64_t wr_id, uint32_t lkey = 0x10);
// One SGE of 8 bytes with lkey 0x10, and rkey 0x20 where one is needed.
void post_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled = true);
// The same while the path is parked or on the backup: into the journal only.
void park_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled = true);

// Everything poll_slow() gives.
std::vector<ibv_wc> poll_all(CompletionQueue* cq);
std::vector<uint64_t> wr_ids(const std::vector<ibv_wc>& completions);

inline constexpr uint32_t kLkey = 0x10, kRkey = 0x20;
inline constexpr uint32_t kBackupLkey = 0x1010, kBackupRkey = 0x2020;  // of the same region

std::chrono::steady_clock::time_point soon();

}  // namespace shift::group

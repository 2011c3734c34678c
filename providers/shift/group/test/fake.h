// A host without hardware, whose device group has three members, for tests of the virtual objects.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "group/commit.h"
#include "group/completion.h"
#include "group/context.h"
#include "group/domain.h"
#include "group/drain.h"
#include "group/failing.h"
#include "group/fault_sink.h"
#include "group/fence.h"
#include "group/group.h"
#include "group/park.h"
#include "group/region.h"
#include "group/replay.h"
#include "group/shared_queue.h"
#include "group/test/fake_nic.h"

namespace shift::group {

// The members besides kDefault.
inline constexpr int kBackup = 1, kThird = 2;

// Records what the data path reports to the control thread.
struct FakeSink final : FaultSink {
  struct Fault {
    Group* group;
    fsm::Event event;
    int member;
    std::string cause;
  };
  std::vector<Fault> faults;
  int pump_wanted_calls = 0;
  int read_back_wanted_calls = 0;
  int receives_wanted_calls = 0, receives_scarce_calls = 0;
  std::vector<int> stuck, refused, unread;  // the members named
  std::vector<std::pair<Group*, int>> doubted;

  void fault(Group* group, fsm::Event event, int member, Cause cause) override {
    faults.push_back({group, event, member, cause.text});
  }
  void verdict_wanted(Group* group, int member) override { doubted.emplace_back(group, member); }
  void pump_wanted(Group*) override { pump_wanted_calls++; }
  void read_back_wanted(Group*) override { read_back_wanted_calls++; }
  void read_back_failed(Group*, int member) override { unread.push_back(member); }
  void receives_wanted(SharedQueue*, int) override { receives_wanted_calls++; }
  void receives_scarce(SharedQueue*) override { receives_scarce_calls++; }
  void receives_stuck(SharedQueue*, int member) override { stuck.push_back(member); }
  void receives_refused(SharedQueue*, int member) override { refused.push_back(member); }
};

// One context with all members, one PD, and the CQs and groups that the test makes.
class World {
 public:
  // `net`: the second byte of the NICs' addresses, 127.<net>.<member>.1.
  explicit World(uint8_t net = 0, int members = 3);
  ~World();

  CompletionQueue* make_cq();
  SharedQueue* make_srq(uint32_t max_wr, uint32_t max_sge = 2);
  struct Options {
    uint32_t depth = 16;
    uint32_t max_sge = 2;
    uint32_t max_inline = 64;
    bool all_signaled = false;
    bool guarded = true;  // as if a second path were ready
    bool twins = true;    // the further members' QPs exist and are connected
    SharedQueue* srq = nullptr;
  };
  Group* make_group(CompletionQueue* send_cq, CompletionQueue* recv_cq, const Options& options);
  Group* make_group(CompletionQueue* cq) { return make_group(cq, cq, Options{}); }
  // From here on the test owns the object, and destroys it.
  void let_go(Group* group);
  void let_go(CompletionQueue* cq);

  // Does what the control thread does when the NICs say that their ports are up. Returns how many
  // groups were asked for.
  size_t believe();

  // Makes a region; each of its registrations on the further members is in the state `twin`.
  MemoryRegion* make_region(uint32_t lkey, uint32_t rkey,
                            MemoryRegion::Twin twin = MemoryRegion::Twin::kReady);

  static FakeQp& fake(ibv_qp* qp) { return FakeQp::of(qp); }
  static FakeCq& fake(CompletionQueue* cq, int member) { return FakeCq::of(cq->real[member]); }
  static FakeQp& fake(Group* group, int member) { return FakeQp::of(group->real[member]); }
  FakeNic& nic(int member) { return nics_[member]; }

  Context context;
  ProtectionDomain pd;
  FakeSink sink;

 private:
  Device device_{};
  std::deque<FakeNic> nics_;  // a deque, so that addresses stay
  std::vector<std::unique_ptr<CompletionQueue>> cqs_;
  std::vector<std::unique_ptr<SharedQueue>> srqs_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<MemoryRegion>> regions_;
};

// Posts directly on the default path and into the journal, as the hot path would.
void post_send(Group& group, const ibv_send_wr& wr);
void post_recv(Group& group, uint64_t wr_id, uint32_t lkey = 0x10);
// Posts one SGE of 8 bytes with lkey 0x10, and with rkey 0x20 where the opcode needs one.
void post_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled = true);
// Does the same for a parked queue: the request goes only into the journal.
void park_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled = true);
// Does the same off the default, where the request goes into the journal and is pumped.
void path_send(Group& group, uint64_t wr_id, ibv_wr_opcode opcode, bool signaled = true);

// Parks the groups and shuts the paths that they are committed to. Returns which of them are
// proven.
inline constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(5), kNoPatience{};
std::vector<bool> fence(std::vector<Group*> groups, std::chrono::nanoseconds patience = kPatience);
// The first half of a round, before the peer gets its Progress: fence and commit.
void leave_for(Group& group, int member, int peer_member);

// All completions that poll_slow() gives.
std::vector<ibv_wc> poll_all(CompletionQueue* cq);
std::vector<uint64_t> wr_ids(const std::vector<ibv_wc>& completions);
// Whether a request has one of the first numbers that the layer's own requests may have. They have
// others only if the application uses these.
inline bool has_own_number(uint64_t wr_id, const Group& group) {
  return wr_id - group.tag <= 2;
}
// What was posted on a QP, in order, without the layer's own requests.
std::vector<uint64_t> posted_ids(const FakeQp& qp, const Group& group);

// The keys of a region on a member, as the fake NICs number them.
inline constexpr uint32_t lkey_on(int member, uint32_t lkey) {
  return lkey + 0x1000u * static_cast<uint32_t>(member);
}
inline constexpr uint32_t rkey_on(int member, uint32_t rkey) {
  return rkey + 0x2000u * static_cast<uint32_t>(member);
}
inline constexpr uint32_t kLkey = 0x10, kRkey = 0x20;
inline constexpr uint32_t kBackupLkey = lkey_on(kBackup, kLkey);
inline constexpr uint32_t kBackupRkey = rkey_on(kBackup, kRkey);

}  // namespace shift::group

// Reading back through every NIC.
//
// A program may connect a QP to itself, and READ through it from memory that peers write to. When
// the READ is over, all that its NIC had written before has arrived there: PCIe lets no read
// overtake a write, and completions in host memory promise nothing about the memory of a GPU. But a
// READ through one NIC says nothing of what another NIC has written. So, once traffic of a context
// has left the default NIC, the layer READs one byte of the memory through each other NIC that
// data may have come through, before it posts the application's READ.
//
// For this each member has one more QP, which is connected to itself and has a CQ of its own.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "group/device.h"

namespace shift::group {

struct Context;
struct Group;

// Of a group whose QP is connected to itself (Life::is_self). Under send.mutex, unless a comment
// says otherwise.
struct ReadBack {
  // kNone: there is no QP, or one that must be made anew. kMaking: it is the command thread's.
  // kReady: a READ can be posted. kBroken: the NIC does not read back, so no data may come through
  // it, until traffic moves there again.
  enum class State : uint8_t { kNone, kMaking, kReady, kBroken };
  struct Member {
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_mr* region = nullptr;  // of the page that the byte is read into
    void* page = nullptr;      // the command thread's
    std::atomic<State> state{State::kNone};
    std::atomic<bool> is_used{false};  // there may be something to destroy
    std::atomic<int> ending{0};        // the command thread is asked to destroy what there is
    uint32_t unanswered = 0;           // READs posted on the QP that have not completed
  };
  PerMember<Member> members;
  // The members through which data may have come that no READ has ordered yet, one bit each (the
  // low half), and how often the control thread has added to them.
  std::atomic<uint64_t> owed{0};

  // The READ of the application's that waits, by its place in the journal and on which stay on a
  // path; UINT64_MAX: none.
  uint64_t position = UINT64_MAX;
  uint32_t departures = 0;
  uint32_t to_ask = 0;     // members that were not given the layer's READ yet
  uint32_t under_way = 0;  // members that were
  uint64_t seen = 0;       // `owed` when it began
  bool is_home = false;    // all traffic was on the default then
  bool is_over = false;    // all members have answered
  std::chrono::steady_clock::time_point since;
};

// Has all members' QPs made: the caller has the command threads call read_back_make(). Control
// thread.
void read_back_prepare(Group& group);
// Makes the member's QP if it is in kMaking. On the NIC's command thread.
void read_back_make(Group& group, int member);
// Notes that data may come through the member from now on, and takes the group off its hot path.
// Called before any other group of the context is committed to the member. Control thread.
void read_back_begin(Group& group, int member);
// Ends it, for a group that is destroyed or reset.
void read_back_end(Group& group);

// Called before the group's path is given `wr`, a READ that is the first request not posted yet.
// False: the layer's own READs are not over. Then the caller has the control thread call again
// soon. The caller holds send.mutex.
[[nodiscard]] bool read_back_done(Group& group, const ibv_send_wr& wr);
// Whether the group must stay off its hot path. The caller holds send.mutex.
bool read_back_owed(const Group& group);

}  // namespace shift::group

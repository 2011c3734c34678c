// A group: all QPs that stand for one application QP, with its queues and its state.
//
// The virtual objects (this one and those of device.h, context.h, domain.h, region.h,
// completion_queue.h, shared_queue.h) are what the application holds in place of a NIC's own. Each
// begins with the public verbs struct and knows the real object on each member of the device group.
//
// Locks, outermost first: SendQueue::mutex, RecvQueue::mutex, CompletionQueue::mutex (two of them
// in address order), Group::errors_mutex, SharedQueue::mutex, Context::mutex. Before them all
// Group::modify_mutex.
// Nobody waits for a hot section (quiesce.h) while holding any.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "group/completion_queue.h"
#include "group/device.h"
#include "group/journal.h"
#include "group/life.h"
#include "group/packets.h"
#include "group/qp_table.h"
#include "group/quiesce.h"
#include "util/fair_mutex.h"
#include "util/published.h"

namespace shift::group {

struct Context;
struct ProtectionDomain;
struct SharedQueue;

// Where a queue's WRs go.
enum class Route : uint8_t {
  kOnDefault,  // default to default: the hot path
  kParked,     // into the journal only
  kOnPath,     // on the committed path, through the journal
  kError,      // flushed
};

// The send side of a group. Its hot part belongs to the thread that the bias names, or to the
// holder of `mutex` while nobody is; the rest is under `mutex`.
struct SendQueue {
  Bias bias;
  Route route = Route::kOnDefault;  // under mutex
  SendJournal journal;
  FairMutex mutex;
  // Builder interface (ibv_wr_*): the batch being built between wr_start and wr_complete.
  struct {
    bool fast = false;
    uint32_t pending = 0;
    int error = 0;
  } build;
  // Journal position up to which the committed path has been given WRs; valid off kOnDefault.
  uint64_t posted = 0;
  // Up to which all are known to be over, though nothing after them was signaled (a drain).
  uint64_t drained_to = 0;
  // The mode exact: packets of the connection that the posted WRs were given to, and what is proven
  // executed for good, on whichever connection.
  SentPackets sent;
  Executed executed;

  // Empty and on the default path. Nobody else knows it yet, or the caller holds `mutex`.
  void renew(const ibv_qp_cap& cap, bool all_signaled);
};

// The receive side, owned in the same way.
struct RecvQueue {
  Bias bias;
  Route route = Route::kOnDefault;
  RecvJournal journal;
  FairMutex mutex;
  uint64_t posted = 0;  // as SendQueue::posted

  void renew(const ibv_qp_cap& cap);  // as SendQueue::renew
};

// All QPs that stand for one application QP.
struct Group {
  // ---- set before the application has it
  ibv_qp_ex qp;                         // handed to the application
  PerMember<Published<ibv_qp>> real{};  // as CompletionQueue::real
  ibv_qp_ex* real_ex = nullptr;         // the default's
  Context* context = nullptr;
  ProtectionDomain* pd = nullptr;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;
  SharedQueue* srq = nullptr;  // receives come from it; else from a queue of our own
  ibv_qp_cap cap{};
  bool sq_sig_all = false;
  bool exact = false;  // SHIFT_MODE
  // Where the numbers of our own requests begin (own_requests.h).
  uint64_t tag = 0;

  SendQueue send;
  RecvQueue recv;
  Counters counters;

  // One error completion at a time, from whichever CQ: what the application has seen of a breakdown
  // decides what becomes of the next one. Held with that CQ's mutex.
  std::mutex errors_mutex;
  // One change of a member QP's state at a time, towards RTS, by the application or for a path. The
  // way to ERR asks nobody.
  std::mutex modify_mutex;
  std::mutex attr_mutex;  // nothing else is locked under it

  // What a reset makes new.
  Life life;
  // Begins one. Nobody else knows the group yet; or the control thread has forgotten it, and the
  // caller holds both queues' and both CQs' mutexes.
  void life_begin();

  // ---- what others count, and whoever ends a life takes back
  bool counted_slow = false;               // among its CQs' slow_groups. Under the CQs' mutexes
  std::atomic<int> srq_member{kNoMember};  // on which the group can consume its receives

  // Of the worker, for this group. The control thread gives them, until it has forgotten the group.
  std::atomic<int> jobs{0};
  // Its owner works past the layer, and wants no protection. Set before it is connected, or after
  // Coordinator::group_forget().
  std::atomic<bool> let_go{false};

  static Group* from(ibv_qp* qp) { return reinterpret_cast<Group*>(qp); }
  ibv_qp* handle() { return &qp.qp_base; }
  uint32_t qpn() const { return qp.qp_base.qp_num; }
};
static_assert(offsetof(Group, qp) == 0);
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);

// Number of notifications the group has received (valid after the fence).
inline uint64_t notifications_received(const Group& group) {
  return group.counters.done[1];
}

// Both CQs of a group locked, in address order; one when they are the same.
class CqLock {
 public:
  explicit CqLock(Group& group)
      : first_(std::min(group.send_cq, group.recv_cq)),
        second_(std::max(group.send_cq, group.recv_cq)) {
    first_->mutex.lock();
    if (second_ != first_) second_->mutex.lock();
  }
  ~CqLock() {
    if (second_ != first_) second_->mutex.unlock();
    first_->mutex.unlock();
  }
  CqLock(const CqLock&) = delete;
  CqLock& operator=(const CqLock&) = delete;

 private:
  CompletionQueue* first_;
  CompletionQueue* second_;
};

}  // namespace shift::group

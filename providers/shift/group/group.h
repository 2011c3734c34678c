// A group: all QPs that stand for one application QP, with its queues and its state.
//
// The virtual objects (this one and those of device.h, context.h, domain.h, region.h,
// completion_queue.h, shared_queue.h) are what the application holds in place of a NIC's own. Each
// begins with the public verbs struct and knows the real object on each member of the device group.
//
// Locks, outermost first: SlowBatch::mutex, Group::modify_mutex, SendQueue::mutex,
// RecvQueue::mutex, CompletionQueue::mutex (two of them in address order), Group::errors_mutex,
// SharedQueue::mutex, Context::mutex. A thread that holds any but the first must not wait for a hot
// section (quiesce.h), so a thread in a hot section of a send queue may lock the CQs.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "group/completion_queue.h"
#include "group/context.h"
#include "group/device.h"
#include "group/domain.h"
#include "group/errors.h"
#include "group/held.h"
#include "group/journal.h"
#include "group/life.h"
#include "group/packets.h"
#include "group/qp_table.h"
#include "group/quiesce.h"
#include "group/read_back.h"
#include "group/shared_queue.h"
#include "util/config.h"
#include "util/fair_mutex.h"
#include "util/published.h"

namespace shift::group {

// Where the requests go that a queue is given.
enum class Route : uint8_t {
  kOnDefault,  // from default to default: the hot path
  kParked,     // only into the journal
  kOnPath,     // on the committed path, through the journal
  kError,      // each request completes as flushed
};

// A batch of the builder interface (ibv_wr_*) that is built while the hot path is barred. The
// thread collects it here, and wr_complete gives it to the journal and the NIC under
// SendQueue::mutex in one piece: no thread holds that mutex while the program works.
struct SlowBatch {
  // Held from wr_start to wr_complete. The control thread never takes it.
  std::mutex mutex;
  // Under SendQueue::mutex. While it is set, no thread becomes the queue's owner, who would build
  // its own batch beside this one.
  bool is_open = false;
  SendJournal entries;  // its uncommitted entries are the batch
};

// The send side of a group. While the bias names an owner, the hot part belongs to that thread;
// otherwise it belongs to the holder of `mutex`. The rest is under `mutex`.
struct SendQueue {
  Bias bias;
  Route route = Route::kOnDefault;  // under mutex
  SendJournal journal;
  FairMutex mutex;
  // For the builder interface: the batch that is built between wr_start and wr_complete.
  struct {
    bool fast = false;  // it goes to the journal's head and to the NIC's own builder
    uint32_t pending = 0;
    uint32_t signaled = 0, notifications = 0;  // among the pending ones, if they are noted
    int error = 0;
    // Of the pending ones, if they are noted and counted; and by so many bits the length of the
    // newest one's data is shifted to count its further packets.
    uint32_t packets = 0, shift = 0;
  } build;
  // Under mutex: park() has barred the hot path, and nobody has found since that no batch is built
  // there any more (batch_is_over). Meanwhile other users of the queue wait.
  bool is_closing = false;
  // The committed path has been given all WRs before this journal position. Valid off kOnDefault,
  // when the queue is not closing.
  uint64_t posted = 0;
  // A drain has shown that all WRs before this journal position are over, though no signaled
  // completion says so.
  uint64_t drained_to = 0;
  // The committed path's QP holds all WRs from this journal position to `posted`, as far as they
  // have not completed, and no others but the layer's own; UINT64_MAX: that is not known.
  uint64_t given_from = 0;
  // The flushes of a path that was shut have shown that it had completed all WRs before this
  // journal position (group/flushed.h).
  uint64_t flushed_from = 0;
  // For modes that ask the responder: the packets of the connection that the posted WRs were given
  // to, and the WRs that are proven executed for good, on whichever connection.
  SentPackets sent;
  Executed executed;
  SlowBatch slow_batch;

  // A request was compared with what the NIC's queue holds of it; and it could not be read.
  bool is_proven = false, is_unreadable = false;

  // Under `mutex`: makes the calling thread the owner, if the queue may have one. The hot path does
  // not look whether the notes are proven.
  void adopt() {
    if (!slow_batch.is_open && (is_proven || !journal.is_noting())) bias.adopt(this);
  }
  // Makes the queue empty and puts it on the default path. No other thread knows the queue yet, or
  // the caller holds `mutex`.
  void renew(const ibv_qp_cap& cap, bool all_signaled, bool by_notes);
};

// The receive side. Its parts are owned like those of the send side.
struct RecvQueue {
  Bias bias;
  Route route = Route::kOnDefault;
  RecvJournal journal;
  FairMutex mutex;
  uint64_t posted = 0;  // like SendQueue::posted
  bool is_proven = false, is_unreadable = false;

  void adopt() {  // like SendQueue::adopt
    if (is_proven || !journal.is_noting()) bias.adopt(this);
  }
  void renew(const ibv_qp_cap& cap, bool by_notes);  // like SendQueue::renew
};

// All QPs that stand for one application QP.
struct Group {
  // ---- set before the application gets the QP
  ibv_qp_ex qp;                         // what the application holds
  PerMember<Published<ibv_qp>> real{};  // like CompletionQueue::real
  ibv_qp_ex* real_ex = nullptr;         // the default's QP, for the builder interface
  Context* context = nullptr;
  ProtectionDomain* pd = nullptr;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;
  // How to read the queues of the default's QP. Without a table the journals copy each request.
  RingReader reader;
  SharedQueue* srq = nullptr;  // the receives come from it; null: the QP has its own receive queue
  ibv_qp_cap cap{};
  bool sq_sig_all = false;
  Mode mode = Mode::kRelaxed;  // SHIFT_MODE
  // The default NIC was dead when the QP was made or reset. Its QP, a deputy's or the dead NIC's,
  // gives the group its number and is used for nothing: the group begins on another path, and never
  // comes to the default. Set on the application's thread while no other thread works on the group.
  std::atomic<bool> is_homeless{false};
  // The numbers of the layer's own requests begin here (own_requests.h).
  uint64_t tag = 0;

  SendQueue send;
  RecvQueue recv;
  Counters counters;
  ReadBack read_back;

  // Held, after the CQ's mutex and never without it, while one error completion of either CQ is
  // worked on: what the application has seen of a breakdown decides what becomes of the next error.
  std::mutex errors_mutex;
  KeptErrors kept;
  // Held while the application or a change of path brings that member's QP towards RTS. A change to
  // ERR does not take it. The control thread never takes it, because a NIC may hang meanwhile.
  PerMember<std::mutex> modify_mutex;
  std::mutex attr_mutex;  // no other lock is taken while it is held

  // A reset makes all of it new.
  Life life;
  // Begins a new life. Either no other thread knows the group yet; or the control thread has
  // forgotten it, and the caller holds the mutexes of both queues and both CQs.
  void life_begin();

  // ---- counts that others keep of this group; the thread that ends a life takes them back
  bool counted_slow = false;               // its CQs' slow_groups count it; under the CQs' mutexes
  std::atomic<int> srq_member{kNoMember};  // where the group can consume receives of its SRQ
  bool srq_leaves = false;  // it is about to leave that member; under the SRQ's mutex
  // The room that its CQs keep for it, from its creation until it is destroyed.
  uint32_t reserved_sends = 0, reserved_receives = 0;

  // How many jobs the command threads have for this group, those of a fence included. The control
  // thread adds jobs until it has forgotten the group.
  std::atomic<int> jobs{0};
  // Both are ending.h's: the application destroys the QP, and how many jobs work on the default's.
  std::atomic<bool> is_ending{false};
  std::atomic<int> at_work{0};
  Holders holders;
  // What the tasks of command threads may still use when the application has destroyed the group.
  Held<CompletionQueue> send_cq_held, recv_cq_held;
  Held<ProtectionDomain> pd_held;
  Held<SharedQueue> srq_held;
  // The owner of the QP works past the layer, and wants no protection. Set before the QP is
  // connected, or after Coordinator::group_forget().
  std::atomic<bool> let_go{false};

  static Group* from(ibv_qp* qp) { return reinterpret_cast<Group*>(qp); }
  ibv_qp* handle() { return &qp.qp_base; }
  uint32_t qpn() const { return qp.qp_base.qp_num; }
  // Whether this end counts packets and asks how far the peer's responder got.
  bool asks_responder() const { return mode != Mode::kRelaxed; }
  // Whether a request must not run again of which nothing proves that it was not executed.
  bool needs_proof() const { return mode == Mode::kExact; }
};
static_assert(offsetof(Group, qp) == 0);
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);

// The number of notifications that the group has received. Valid after the fence.
inline uint64_t notifications_received(const Group& group) {
  return group.counters.done[1];
}

// Locks both CQs of a group in address order, or the one CQ if it serves as both.
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

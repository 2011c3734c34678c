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
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "fsm/fsm.h"
#include "group/completion_queue.h"
#include "group/device.h"
#include "group/journal.h"
#include "group/packets.h"
#include "group/qp_table.h"
#include "group/quiesce.h"
#include "util/fair_mutex.h"
#include "util/published.h"
#include "wire/names.h"

namespace shift::group {

struct Context;
struct ProtectionDomain;
struct SharedQueue;

// What becomes of a completion that a member's CQ gives for a group's QP.
enum class Accept : uint8_t {
  kPass,   // unprotected, or the application's own doing: as it comes, QPN translated
  kGuard,  // successes are counted and delivered; a path error is held back and reported
  kDrop,   // an old epoch's, or synthesised already (C8)
};

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
  // Up to which all are known to be over, though nothing behind them was signaled (a drain).
  uint64_t drained_to = 0;
  // The mode exact: packets of the connection that the posted WRs were given to, and what is proven
  // executed for good, on whichever connection.
  SentPackets sent;
  Executed executed;
};

// The receive side, owned in the same way.
struct RecvQueue {
  Bias bias;
  Route route = Route::kOnDefault;
  RecvJournal journal;
  FairMutex mutex;
  uint64_t posted = 0;  // as SendQueue::posted
};

// The peer's default rkey -> the rkey on each of its members, as it told us. Under send.mutex.
struct RemoteKeys {
  PerMember<std::unordered_map<uint32_t, uint32_t>> known;
};

// The empty WRITE that tries a new connection.
enum class Probe : uint8_t { kNone, kPosted, kDone, kFailed };

// All QPs that stand for one application QP.
struct Group {
  Group() {
    for (auto& one : accept) one = Accept::kDrop;
    accept[kDefault] = Accept::kPass;
  }

  ibv_qp_ex qp;                         // handed to the application
  PerMember<Published<ibv_qp>> real{};  // as CompletionQueue::real
  ibv_qp_ex* real_ex = nullptr;         // the default's
  Context* context = nullptr;
  ProtectionDomain* pd = nullptr;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* recv_cq = nullptr;

  SendQueue send;
  RecvQueue recv;
  Counters counters;
  // One error completion at a time, from whichever CQ: what the application has seen of a breakdown
  // decides what becomes of the next one. Held with that CQ's mutex.
  std::mutex errors_mutex;
  // Changed under both CQs' mutexes, or under errors_mutex; read under one of the three.
  PerMember<std::atomic<Accept>> accept;

  // The path we are committed to; `member` is kNoMember between fence and choice. Written by the
  // control thread under both queues' mutexes.
  std::atomic<int> member{kDefault};
  int peer_member = kDefault;
  bool counted_slow = false;  // among its CQs' slow_groups. Under the CQs' mutexes

  // The first error the old path gave, held back; delivered if the switch fails (C6). As `accept`.
  ibv_wc original_error{};  // status 0: none yet
  // An error of this path was held back and reported. As `accept`.
  PerMember<std::atomic<bool>> fault_reported{};
  // The request that failed last with an error that may be the path's or the request's, and how
  // many requests had completed then. As `accept`.
  struct Doubt {
    uint64_t wr_id;
    uint64_t done;
    bool operator==(const Doubt&) const = default;
  };
  std::optional<Doubt> doubt;
  std::atomic<bool> off_default{false};  // a fault is being masked
  std::atomic<uint32_t> departures{0};   // how often a path was left
  std::atomic<bool> switching{false};    // errors of the old path are stored, not reported
  std::array<std::atomic<bool>, 2>
      drained{};  // marker of the send / receive queue seen. Under the CQ's mutex
  // Markers of ours on their way through a healthy send queue (the way back).
  std::atomic<int> drain_markers{0};
  // This drain's marker is posted, and was not flushed. Set under send.mutex, taken back under it
  // or under the CQ's mutex.
  std::atomic<bool> drain_marked{false};
  // A request waits for the place that a drain's marker takes in the send queue.
  std::atomic<bool> waits_for_marker{false};
  PerMember<std::atomic<Probe>> probe{};
  // Requests of our own that the member's connection was given before the application's; each is
  // one packet. Set back when it is connected.
  PerMember<std::atomic<uint32_t>> own_packets{};
  // wr_ids of our own requests: our address, nobody else's. Send marker, receive marker, probe.
  uint64_t tag = 0;
  // Completed WRs of the replay whose completion must not show the stand-in's opcode.
  std::map<uint32_t, ibv_wc_opcode> opcode_of_signaled;  // under send_cq->mutex

  RemoteKeys remote_keys;

  SharedQueue* srq = nullptr;                 // receives come from it; else from a queue of our own
  std::atomic<int> srq_member{kNoMember};     // on which the group can consume its receives
  PerMember<std::atomic<bool>> last_taken{};  // LAST_WQE_REACHED since the member's connection

  // One change of a member QP's state at a time, towards RTS, by the application or for a path. The
  // way to ERR asks nobody.
  std::mutex modify_mutex;
  // What the application asked for, shown by query_qp. Under attr_mutex.
  std::mutex attr_mutex;
  ibv_qp_attr attr{};
  int attr_mask = 0;
  ibv_qp_cap cap{};
  bool sq_sig_all = false;
  PerMember<std::atomic<bool>> can_send{};  // the member's QP has reached RTS
  // Start PSN of the connection that we made last of the member's QP; none: it is the application's
  // own, or there is none. Under attr_mutex.
  PerMember<std::optional<uint32_t>> last_psn{};
  PerMember<uint32_t> path_mtu{};            // of the connection that we made last, in bytes
  wire::QpName local, remote;                // set at RTR; names on the control channel
  uint32_t gid_type = IBV_GID_TYPE_ROCE_V2;  // of the GID in `local`, as the application chose it

  // Of this life of the QP, until its next reset; never used twice in a process. Changed under all
  // its mutexes.
  uint64_t serial = 0;
  bool exact = false;  // SHIFT_MODE
  // SHIFT runs at the peer: the NIC's patience on the default path is bounded (C10). Set before
  // RTR.
  bool peer_present = false;
  // Of the worker, for this group. The control thread gives them, until it has forgotten the group.
  std::atomic<int> jobs{0};
  // Its owner works past the layer, and wants no protection. Set before it is connected, or behind
  // Coordinator::group_forget().
  std::atomic<bool> let_go{false};

  // ---- control thread only
  fsm::State state = fsm::State::kActive;
  uint32_t epoch = 0;
  uint32_t sequence = 0;
  uint64_t peer_received = 0;
  // PSN that the peer's responder expected next on the connection our requests were posted on.
  std::optional<uint32_t> peer_responder;
  bool asks_responder = true;  // the peer wants to know ours, or has not said yet
  bool is_leader = false;      // picks the paths: the smaller of the two names

  static Group* from(ibv_qp* qp) { return reinterpret_cast<Group*>(qp); }
  ibv_qp* handle() { return &qp.qp_base; }
  uint32_t qpn() const { return qp.qp_base.qp_num; }
};
static_assert(offsetof(Group, qp) == 0);
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);

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

// The virtual objects: what the application holds in place of a NIC's own. Each begins with the
// public verbs struct and knows the real object on each member of the device group.
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
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fsm/fsm.h"
#include "group/async_events.h"
#include "group/cause.h"
#include "group/journal.h"
#include "group/packets.h"
#include "group/qp_table.h"
#include "group/quiesce.h"
#include "group/region_table.h"
#include "util/fair_mutex.h"
#include "util/published.h"
#include "util/unique_fd.h"
#include "wire/names.h"

namespace shift::group {

struct Group;
struct CompletionQueue;
struct SharedQueue;

// Members of a device group, by their place in it: the NIC that the application opened comes first.
inline constexpr int kDefault = 0;
inline constexpr int kMembersMax = 4;
inline constexpr int kNoMember = -1;

template <typename T>
using PerMember = std::array<T, kMembersMax>;

struct Device {
  ibv_device dev;   // handed to the application; names and paths of the default NIC
  char zeros[512];  // stock providers look behind a device (verbs_device)
  // Valid while the real list is held; an open context has its own.
  PerMember<ibv_device*> real{};
  int members = 0;
};

struct CompletionChannel {
  ibv_comp_channel channel;  // fd is an epoll fd over all members' channels and `inject_fd`
  PerMember<ibv_comp_channel*> real{};
  int inject_fd = -1;  // eventfd: completions made by us wait in a side queue
  std::mutex mutex;
  std::deque<CompletionQueue*> injected;
  // Queues whose event was kept back: the application is told at the latest by then.
  struct Owed {
    CompletionQueue* cq;
    std::chrono::steady_clock::time_point at;
  };
  std::deque<Owed> owed;
  std::atomic<bool> default_closed{false};  // its driver let go of the default NIC
};

struct ProtectionDomain {
  ibv_pd pd;
  PerMember<ibv_pd*> real{};
  std::atomic<int> users{0};
  // Of a parent domain: what it was made of. On the further members the two are one.
  ProtectionDomain* base = nullptr;
  // The application's, for objects on the default; called with its handle, and by its threads.
  ibv_parent_domain_init_attr allocators{};
  struct Released {
    void* memory;
    uint64_t resource_type;
  };
  std::mutex mutex;
  std::vector<Released> released;  // by a thread of ours; under mutex

  const ProtectionDomain& domain() const { return base != nullptr ? *base : *this; }
  static ProtectionDomain* from(ibv_pd* pd) { return reinterpret_cast<ProtectionDomain*>(pd); }
};
static_assert(offsetof(ProtectionDomain, pd) == 0);

// The application's handle is the default NIC's own object, which names the virtual context and PD
// for as long as the stock library does not look at it (ops/memory.cc): providers keep things
// behind a region that they want to see when it is named in a request (IBV_WR_BIND_MW).
struct MemoryRegion {
  ibv_mr mr;  // what the application is shown; lkey and rkey are the default member's
  PerMember<ibv_mr*> real{};
  // How it is registered on the further members.
  enum class Kind : uint8_t { kMemory, kDmabuf, kNull, kOnDefault };  // the last: it is not
  Kind kind = Kind::kMemory;
  UniqueFd fd;  // kDmabuf: our own
  uint64_t offset = 0;
  unsigned access = 0;
  uint64_t iova = 0;

  // The handle. Where the default NIC has no region, being dead, it is our own.
  ibv_mr* shown() { return real[kDefault] != nullptr ? real[kDefault] : &mr; }
  // The further members' registrations are made by the worker. Under Context::mutex.
  enum class Twin : uint8_t { kQueued, kRunning, kReady, kFailed };
  PerMember<Twin> twin{};
  bool deregistered = false;  // what is queued yet is not begun. Under Context::mutex
};

struct Context {
  Device* device = nullptr;
  int members = 0;
  PerMember<ibv_context*> real{};
  PerMember<QpTable> qps;
  PerMember<std::atomic<bool>> dead{};  // DEVICE_FATAL seen, or a call said EIO
  // Linux's soft-RoCE, which leaves some things untold. Set before the context is anybody's.
  PerMember<bool> is_soft_roce{};

  std::mutex mutex;
  std::condition_variable changed;  // a background job ended
  RegionTable regions;
  std::unordered_map<const ibv_mr*, std::shared_ptr<MemoryRegion>> region_handles;
  std::vector<CompletionQueue*> cqs;
  std::vector<Group*> groups;
  // Before `mutex`: held while an event's group is worked on, and to take a group off `groups`. Of
  // this kind since one can see who waits for it: a test does.
  FairMutex event_mutex;
  std::vector<SharedQueue*> srqs;
  std::vector<const ibv_qp*> own_qps;  // that stand for nothing of the application's
  std::atomic<int> objects{0};

  // CQs without a channel of the application's own are attached to these, armed for errors only.
  PerMember<ibv_comp_channel*> watch{};
  AsyncEvents events;  // behind context.async_fd

  // What a healthy NIC answered: while its fault is masked, these are shown (C9).
  ibv_device_attr_ex device_attr{};
  ibv_device_attr_ex common_attr{};  // what all members can do, as they said when they were opened
  std::map<uint8_t, ibv_port_attr> port_attr;
  std::map<uint8_t, ibv_port_attr> port_limits;  // what all members that were up can do
  // GIDs of each member's port 1 that carry RoCE v2 and an IPv4 address, by value.
  PerMember<std::vector<wire::Gid>> gids;  // control thread only
  PerMember<uint32_t> gid_index{};         // where an own address was found last; worker only
  // Start PSNs of our connections are drawn from it. Seeded at random when the device is opened.
  std::atomic<uint64_t> psn_draws{0};

  verbs_context verbs{};  // its ibv_context is the application's handle; last, as the ABI wants

  ibv_context* handle() { return &verbs.context; }
  // Of a member's NIC. Its device lives as long as it is open, whatever lists are made meanwhile.
  const char* name(int member) const { return real[static_cast<size_t>(member)]->device->name; }
  static Context* from(ibv_context* context) {
    return reinterpret_cast<Context*>(reinterpret_cast<char*>(context) - offsetof(Context, verbs) -
                                      offsetof(verbs_context, context));
  }
};

// What becomes of a completion that a member's CQ gives for a group's QP.
enum class Accept : uint8_t {
  kPass,   // unprotected, or the application's own doing: as it comes, QPN translated
  kGuard,  // successes are counted and delivered; a path error is held back and reported
  kDrop,   // an old epoch's, or synthesised already (C8)
};

// What an extended CQ can tell about a completion beside an ibv_wc.
struct WcExtra {
  uint64_t device_time = 0;   // in ticks of the default NIC's clock
  uint64_t wallclock_ns = 0;  // of CLOCK_REALTIME
  ibv_wc_tm_info tm{};
  uint32_t flow_tag = 0;
  uint16_t cvlan = 0;
};

struct Completion : ibv_wc {
  Completion(const ibv_wc& wc, const WcExtra& more) : ibv_wc(wc), extra(more) {}
  WcExtra extra;
};

struct ExtendedPoll;  // group/extended.h

struct CompletionQueue {
  CompletionQueue();
  ~CompletionQueue();
  union {
    ibv_cq cq;
    ibv_cq_ex cq_ex{};  // begins as the other one; the larger, so that all of it is empty
  };
  // The worker makes those of the further members; the default's is there before the handle is.
  PerMember<Published<ibv_cq>> real{};
  Context* context = nullptr;
  CompletionChannel* channel = nullptr;
  ProtectionDomain* domain = nullptr;  // of those made with a parent domain

  // Hot: see ops/poll.cc.
  Bias bias;
  uint32_t last_qpn = UINT32_MAX;
  Counters* last_counters = nullptr;
  Counters unprotected;  // counts for nobody: QPs that are not ours
  // Completions of ours, or of a masked fault, were here: until then an event may stand for them.
  std::atomic<std::chrono::steady_clock::time_point> doubtful_until{};

  FairMutex mutex;
  std::deque<Completion> side;  // delivered before anything else is polled
  size_t told = 0;              // so many of them, the oldest, an event has told the application of
  std::unique_ptr<ExtendedPoll> extended;  // of those that ibv_create_cq_ex made
  std::vector<Group*> groups;
  // Groups that are not on their default path, or failed: while there are any, no hot path.
  int slow_groups = 0;
  std::atomic<bool> poll_all{false};  // further members' CQs have completions for the application
  std::atomic<bool> armed{false};     // the application asked for an event that has not come yet
  std::atomic<bool> armed_solicited{false};
  // Under cq.mutex, with comp_events_completed. Those that a thread has taken and may yet drop
  // count, too: it looks at this CQ meanwhile.
  unsigned events_delivered = 0;
  bool gives_events = true;  // under cq.mutex; else it is being destroyed
  std::atomic<int> users{0};
  std::atomic<int> jobs{0};  // of the worker, about the further members' CQs
  bool doubled = false;      // made with twice the entries that were asked for
  bool let_go = false;       // its owner polls the NIC's own: no QP on it is protected. Under mutex

  static CompletionQueue* from(ibv_cq* cq) { return reinterpret_cast<CompletionQueue*>(cq); }
  static CompletionQueue* from(ibv_cq_ex* cq) { return reinterpret_cast<CompletionQueue*>(cq); }
};
static_assert(offsetof(CompletionQueue, cq) == 0 && offsetof(CompletionQueue, cq_ex) == 0);
static_assert(offsetof(ibv_cq_ex, async_events_completed) ==
              offsetof(ibv_cq, async_events_completed));

// Where a queue's WRs go.
enum class Route : uint8_t {
  kOnDefault,  // default to default: the hot path
  kParked,     // into the journal only
  kOnPath,     // on the committed path, through the journal
  kError,      // flushed
};

// The send side of a group.
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
  PerMember<std::atomic<Accept>> accept{Accept::kPass, Accept::kDrop, Accept::kDrop, Accept::kDrop};

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

// How the data path tells the control thread. Set once by control/ before the first QP exists.
class FaultSink {
 public:
  // `member`: the one it happened on; what is not committed any more when this is handled is not
  // news. kNoMember: whichever is.
  virtual void fault(Group* group, fsm::Event event, int member, Cause cause) = 0;
  // Something waits in the send queue, perhaps for a key of the peer's: ask for that, or pump().
  virtual void pump_wanted(Group* group) = 0;
  // The worker shall call the queue's recall_some().
  virtual void receives_wanted(SharedQueue*) {}
  // Nor can that bring any back from `member`, which does not work. From the worker.
  virtual void receives_stuck(SharedQueue*, int /*member*/) {}
  // A receive that has to go to `member` names a region which is not registered there.
  virtual void receives_refused(SharedQueue*, int /*member*/) {}

 protected:
  ~FaultSink() = default;
};
extern FaultSink* fault_sink;

}  // namespace shift::group

// Completion queues, their channels, and completions while the layer keeps them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "group/context.h"
#include "group/device.h"
#include "group/domain.h"
#include "group/held.h"
#include "group/qp_table.h"
#include "group/quiesce.h"
#include "util/fair_mutex.h"
#include "util/published.h"

namespace shift::group {

struct CompletionQueue;
struct Context;
struct ExtendedPoll;
struct Group;
struct ProtectionDomain;

// The injected and the owed events are under `mutex`; the rest is set before the application gets
// the channel.
struct CompletionChannel {
  ibv_comp_channel channel;  // its fd is an epoll fd over all members' channels and `inject_fd`
  PerMember<ibv_comp_channel*> real{};
  int inject_fd = -1;  // an eventfd: completions that the layer has made wait in a side queue
  std::mutex mutex;
  std::deque<CompletionQueue*> injected;
  // Queues whose event was kept back: the application gets the event at the time `at`, or while a
  // completion is to be expected at `last`.
  struct Owed {
    CompletionQueue* cq;
    std::chrono::steady_clock::time_point at, last;
    bool unarmed;  // the event is owed even if the queue is not armed
  };
  std::deque<Owed> owed;  // in the order of time
  Holders holders;
  std::atomic<bool> default_closed{false};  // its driver has let go of the default NIC
  // How the program takes events: whether it ever had to wait in a call, and how many calls found
  // the channel readable.
  std::atomic<bool> is_waited_on{false};
  std::atomic<uint64_t> found_at_once{0};

  // Owes the application an event of `cq` at that time, or earlier if it was owed earlier, and if
  // `unarmed` or if it was owed so earlier, to one that has not armed the queue, too.
  void owe(CompletionQueue& cq, std::chrono::steady_clock::time_point at, bool unarmed = false);
  bool owes(const CompletionQueue& cq);
  // The caller holds `mutex`, and no event of this queue is owed.
  void owe_once(const Owed& one);
};

// What an extended CQ can say of a completion besides an ibv_wc.
struct WcExtra {
  uint64_t device_time = 0;   // in ticks of the default NIC's clock
  uint64_t wallclock_ns = 0;  // by CLOCK_REALTIME
  ibv_wc_tm_info tm{};
  uint32_t flow_tag = 0;
  uint16_t cvlan = 0;
};

struct Completion : ibv_wc {
  Completion(const ibv_wc& wc, const WcExtra& more) : ibv_wc(wc), extra(more) {}
  WcExtra extra;
};

// While the bias names an owner, the hot part belongs to that thread; otherwise it belongs to the
// holder of `mutex`. `mutex` guards the rest, unless a comment says otherwise.
struct CompletionQueue {
  CompletionQueue();
  ~CompletionQueue();
  union {
    ibv_cq cq;
    ibv_cq_ex cq_ex{};  // begins like `cq`; it is the larger one, so its {} clears both
  };
  // The command threads make the CQs of the further members; the default's CQ exists before the
  // handle does.
  PerMember<Published<ibv_cq>> real{};
  Context* context = nullptr;
  CompletionChannel* channel = nullptr;
  ProtectionDomain* domain = nullptr;  // of a CQ that was made with a parent domain

  // The hot part; see ops/poll.cc.
  Bias bias;
  uint32_t last_qpn = UINT32_MAX;
  Counters* last_counters = nullptr;
  const ibv_wc* shown = nullptr;  // the completion that an extended poll is at
  Counters unprotected;  // shared by all QPs that are not protected; nothing reads these counts
  // Completions of the layer's own requests or of a masked fault were here: until this time at
  // least, an event of the NIC may stand for them. Zero: no event is in doubt.
  std::atomic<std::chrono::steady_clock::time_point> doubtful_until{};

  FairMutex mutex;
  // A command changes the default's CQ, so no thread polls it; and one wanted to.
  bool is_changing = false, is_passed_over = false;
  std::deque<Completion> side;  // delivered before the real CQs are polled
  size_t announced = 0;         // an event has announced the oldest `announced` of them
  // While events are in doubt: how many completions had been seen when the application last asked
  // for an event, and how many events it has not got yet that earlier completions have raised.
  uint64_t seen_at_arming = 0;
  int events_open = 0;
  std::unique_ptr<ExtendedPoll> extended;  // of a CQ that ibv_create_cq_ex made
  std::vector<Group*> groups;
  // How many groups are off their default path, or have failed. While there are any, the hot path
  // is barred.
  int slow_groups = 0;
  int kept_errors = 0;                // of this queue, in KeptErrors; they bar the hot path, too
  std::atomic<bool> poll_all{false};  // further members' CQs have completions for the application
  std::atomic<bool> armed{false};     // the application asked for an event that has not come yet
  std::atomic<bool> armed_solicited{false};
  // Both are under the mutex inside `cq`, like cq.comp_events_completed. An event counts as
  // delivered when a thread takes it, even if the thread may drop it: it looks at this CQ
  // meanwhile.
  unsigned events_delivered = 0;
  bool gives_events = true;  // false: the CQ is being destroyed
  std::atomic<int> users{0};
  Holders holders;
  Held<Context> context_held;
  Held<CompletionChannel> channel_held;
  Held<ProtectionDomain> domain_held;
  // The application destroys the queue: no background thread looks at the default's CQ any more,
  // arms it or raises an event. Set under `mutex`.
  std::atomic<bool> is_ending{false};
  // How many entries the application asked for, and how many a fence of the protected QPs may need:
  // all that they can have posted gives completions then. Both under `room_mutex`, which is also
  // held while the real CQs change their size. A thread takes it before `mutex`.
  std::mutex room_mutex;
  int asked = 0;
  int flushable = 0;
  // How many entries the default's CQ has. It changes under `room_mutex`, and command threads of
  // other NICs, which may not wait for that, read it.
  std::atomic<int> entries{0};
  bool takes_others = false;  // not only completions of protected QPs' own queues; room_mutex
  bool let_go = false;        // its owner polls the NIC's CQ: no QP on it is protected; under mutex

  static CompletionQueue* from(ibv_cq* cq) { return reinterpret_cast<CompletionQueue*>(cq); }
  static CompletionQueue* from(ibv_cq_ex* cq) { return reinterpret_cast<CompletionQueue*>(cq); }
};
static_assert(offsetof(CompletionQueue, cq) == 0 && offsetof(CompletionQueue, cq_ex) == 0);
static_assert(offsetof(ibv_cq_ex, async_events_completed) ==
              offsetof(ibv_cq, async_events_completed));

// Whether a thread may own the hot part. The caller holds cq.mutex.
inline bool may_be_hot(const CompletionQueue& cq) {
  return cq.slow_groups == 0 && cq.kept_errors == 0 && !cq.is_changing && cq.side.empty();
}

}  // namespace shift::group

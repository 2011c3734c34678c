// Completion queues, their channels, and what a completion is while we keep it.
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

#include "group/device.h"
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

// What is injected and owed is under `mutex`; the rest is set before the application has it.
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

// Its hot part belongs to the thread that the bias names, or to the holder of `mutex` while nobody
// is; what is noted otherwise apart, `mutex` guards the rest.
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
  // Completions of the layer's own requests, or of a masked fault, were here: until then an event
  // may stand for them.
  std::atomic<std::chrono::steady_clock::time_point> doubtful_until{};

  FairMutex mutex;
  std::deque<Completion> side;  // delivered before anything else is polled
  size_t announced = 0;         // so many of them, the oldest, an event has told the application of
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

}  // namespace shift::group

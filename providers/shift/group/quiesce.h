// How the control thread stops a hot path without the hot path paying for a lock.
//
// A queue (send, receive, completion) is biased towards one thread. That thread announces in its
// own slot what it is working on, looks whether it is still the owner, and works:
//     slot->active = queue;  (compiler barrier)  if (queue.owner != slot) go the slow way;
// Whoever wants the queue stored owner = kNobody first and then makes every running thread of the
// process execute a full barrier (membarrier). After that each thread has either seen kNobody, or
// its `active` is visible and can be waited for. The slow way takes the queue's mutex.
//
// Interleaving that breaks without the barrier: owner stores active (still in its store buffer),
// reads the old owner, works; the revoker reads active == nullptr and starts draining beside it.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "util/fair_mutex.h"

namespace shift::group {

// One per thread that ever used a virtual object; recycled when the thread ends. Never freed.
struct alignas(64) ThreadSlot {
  std::atomic<const void*> active{nullptr};  // written by its thread only (release at the end)
  // The send queue whose batch this thread is building (ibv_wr_start .. ibv_wr_complete). Apart
  // from `active`, because a program may poll in between.
  std::atomic<const void*> building{nullptr};
  std::atomic<bool> taken{false};
  ThreadSlot* next = nullptr;
};

// Threads that have no slot yet share this one; it never owns anything.
extern constinit ThreadSlot unregistered_slot;

[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadSlot* tls_slot;

// How the owner of a completion queue polls it. The two ways are never hot at once: each would have
// to look for what the other left behind.
enum class Manner : uintptr_t { kClassic = 0, kExtended = 1 };

// The owner of one queue.
class Bias {
 public:
  // True: the calling thread may work without the mutex, and must call leave() afterwards.
  template <Manner manner = Manner::kClassic>
  [[gnu::always_inline]] bool enter(ThreadSlot* self, const void* queue) {
    self->active.store(queue, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // pairs with wait_until_left
    return owner_.load(std::memory_order_relaxed) == tagged(self, manner);
  }
  [[gnu::always_inline]] static void leave(ThreadSlot* self) {
    // Release: whoever waits for this sees everything the section wrote.
    self->active.store(nullptr, std::memory_order_release);
  }

  // Under the queue's mutex: makes the calling thread the owner, if nobody is and if it can be.
  // A queue that a second thread uses becomes shared for good: each of its users takes the mutex.
  [[gnu::cold]] void adopt(const void* queue, Manner manner = Manner::kClassic);

  // As enter(), for the builder interface, whose section spans several calls.
  bool enter_building(ThreadSlot* self, const void* queue) {
    if (self->building.load(std::memory_order_relaxed) != nullptr) return false;  // one at a time
    self->building.store(queue, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (owner_.load(std::memory_order_relaxed) == self) [[likely]]
      return true;
    leave_building(self);
    return false;
  }
  static void leave_building(ThreadSlot* self) {
    self->building.store(nullptr, std::memory_order_release);
  }

  void set_shared() { shared_ = true; }
  // Release: whoever sees that there is no owner sees the revoker, too (is_quiet).
  void set_nobody() { owner_.store(nullptr, std::memory_order_release); }
  bool has_owner() const { return owner_.load(std::memory_order_relaxed) != nullptr; }
  bool is_own() const {
    ThreadSlot* const owner = owner_.load(std::memory_order_relaxed);
    return owner == tls_slot || owner == tagged(tls_slot, Manner::kExtended);
  }

  // Under the queue's mutex: can no hot section be running, nor begin until the mutex is released?
  bool is_quiet() const {
    return owner_.load(std::memory_order_acquire) == nullptr &&
           revokers_.load(std::memory_order_acquire) == 0;
  }
  // Without the mutex: stops the owner and returns when its section has ended. Nobody can become
  // the owner meanwhile.
  [[gnu::cold]] void revoke(const void* queue);
  // revoke() in two halves, for a batch of queues with one wait_until_left() in between. The mutex
  // may be held at both ends, not while waiting.
  void revoke_begin() {
    revokers_.fetch_add(1, std::memory_order_acq_rel);
    set_nobody();
  }
  void revoke_end() { revokers_.fetch_sub(1, std::memory_order_release); }

 private:
  // A slot is a cache line: the low bits of its address are free.
  static ThreadSlot* tagged(ThreadSlot* slot, Manner manner) {
    return reinterpret_cast<ThreadSlot*>(reinterpret_cast<uintptr_t>(slot) |
                                         static_cast<uintptr_t>(manner));
  }

  std::atomic<ThreadSlot*> owner_{nullptr};  // tagged
  // Threads inside revoke(): the owner is gone already, its last section perhaps not.
  std::atomic<int> revokers_{0};
  bool shared_ = false;  // under the queue's mutex
};

// The calling thread's own slot, made if need be; nullptr when memory is short or when this system
// has no membarrier(2): then no queue is ever biased and every call takes the queue's mutex.
[[gnu::cold]] ThreadSlot* thread_slot_get();

// After revoke_begin() on each of `queues`: returns when no thread works on any of them. The caller
// must not hold a mutex that a hot section may want (it may be inside one that does).
//
// `left` is called with the number of each queue as soon as nobody works on it, and should open it
// again (revoke_end). A thread that is building a batch on one of the queues may want another one
// before it ends the batch; it would wait there for us, and we for it.
[[gnu::cold]] void wait_until_left(const void* const* queues, size_t count,
                                   const std::function<void(size_t)>& left);

// Every thread of the process executes a full barrier: what was stored before is seen by whatever
// they load from here on, and what they stored before they loaded the old value is seen here.
[[gnu::cold]] void barrier_everywhere();

// What barrier_everywhere() is made of, for tests: membarrier(2), and what takes its place when it
// fails after queues have been biased. Null pointers bring the real ones back. Returns those
// before.
struct BarrierCalls {
  int (*membarrier)(int command);
  void (*wait_for_stores)();
};
BarrierCalls barrier_calls_set(const BarrierCalls& other);

// The queue's mutex, with every hot section over. `share`: the caller competes with the owner for
// the queue's use, so from now on both take the mutex. (A caller that merely meets a revocation
// does not: the queue stays its own.)
template <typename Queue>
[[gnu::cold]] std::unique_lock<FairMutex> lock_queue(Queue& queue, bool share = false) {
  for (;;) {
    share ? queue.mutex.lock_behind() : queue.mutex.lock();
    std::unique_lock lock(queue.mutex, std::adopt_lock);
    if (queue.bias.is_quiet()) return lock;
    const bool has_owner = queue.bias.has_owner();
    if (share && has_owner && !queue.bias.is_own()) queue.bias.set_shared();
    lock.unlock();
    if (has_owner) {
      queue.bias.revoke(&queue);
    } else {
      sched_yield();  // another thread revokes, and waits for the same section
    }
  }
}

}  // namespace shift::group

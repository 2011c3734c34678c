// How the control thread stops a hot path, although the hot path takes no lock.
//
// A queue (send, receive, completion) is biased towards one thread, its owner. That thread
// announces in its own slot which queue it works on, looks whether it is still the owner, and
// works:
//     slot->active = queue;  (compiler barrier)  if (queue.owner != slot) go the slow way;
// A thread that revokes the bias first stores that there is no owner (set_nobody), and then makes
// each running thread of the process execute a full barrier (membarrier). After that each thread
// either has seen that there is no owner, or its `active` is visible, and the revoker can wait
// until it changes. The slow way takes the queue's mutex.
//
// Without the barrier this order of events would be possible: the owner stores `active`, which
// stays in its store buffer, reads that it is the owner, and works; the revoker reads that `active`
// is null, and works on the queue at the same time.
//
// Nothing here counts on x86-64, where only a store and a later load can change places. On aarch64
// any two accesses can that no order below keeps apart:
// - A section can begin to read the queue before it has read the owner. That is harmless: if the
//   barrier came before its store to `active`, it reads no owner and works on nothing; otherwise
//   the revoker sees the store, and changes nothing before the section is over.
// - A revoker that finds another queue, or none, in `active` must see all that earlier sections
//   wrote. So every store to `active` is a release: those of leave(), and those of enter(), since
//   the revoker may find the queue of the next section.
// - An owner reads its own name in `owner` only if it has stored it itself, under the mutex, and so
//   sees all that was done to the queue before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "util/backoff.h"
#include "util/fair_mutex.h"

namespace shift::group {

// One for each thread that has ever used a virtual object. When the thread ends, another thread may
// get its slot. A slot is never freed.
struct alignas(64) ThreadSlot {
  std::atomic<const void*> active{nullptr};  // only its thread writes it
  // The send queue whose batch this thread is building (ibv_wr_start .. ibv_wr_complete). It is not
  // in `active`, because a program may poll while it builds a batch.
  std::atomic<const void*> building{nullptr};
  std::atomic<bool> taken{false};
  // Arguments of the hot call that the thread is in: where to tell which WR was refused, and how
  // many completions were asked for. They wait here, because only rare paths need them, and to keep
  // them in registers costs more.
  void* bad_wr = nullptr;
  int asked = 0;
  ThreadSlot* next = nullptr;
};

// All threads that have no slot yet share this one, which never owns a queue.
extern constinit ThreadSlot unregistered_slot;

[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadSlot* tls_slot;

// How the owner of a completion queue polls it. A queue is hot in one of the two manners only:
// otherwise each would have to look for completions that the other has left in the queue.
enum class Manner : uintptr_t { kClassic = 0, kExtended = 1 };

// The owner of one queue.
class Bias {
 public:
  // True: the calling thread may work without the mutex, and must call leave() afterwards.
  template <Manner manner = Manner::kClassic>
  [[gnu::always_inline]] bool enter(ThreadSlot* self, const void* queue) {
    // Release: see the top. (An ordinary move on x86-64.)
    self->active.store(queue, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // see barrier_everywhere()
    return owner_.load(std::memory_order_relaxed) == tagged(self, manner);
  }
  [[gnu::always_inline]] static void leave(ThreadSlot* self) {
    // Release: a thread that waits for this store sees all that the section wrote.
    self->active.store(nullptr, std::memory_order_release);
  }

  // Under the queue's mutex: makes the calling thread the owner, if there is no owner and the queue
  // may have one. A queue that a second thread uses becomes shared for good: each of its users
  // takes the mutex.
  [[gnu::cold]] void adopt(const void* queue, Manner manner = Manner::kClassic);

  // Like enter(), for the builder interface, whose section spans several calls.
  bool enter_building(ThreadSlot* self, const void* queue) {
    // A thread builds one batch at a time.
    if (self->building.load(std::memory_order_relaxed) != nullptr) return false;
    // Release: a thread that finds the batch sees all that was done before it.
    self->building.store(queue, std::memory_order_release);
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
  // Release: a thread that sees no owner sees the revoker, too (is_quiet).
  void set_nobody() { owner_.store(nullptr, std::memory_order_release); }
  bool has_owner() const { return owner_.load(std::memory_order_relaxed) != nullptr; }
  bool is_own() const {
    ThreadSlot* const owner = owner_.load(std::memory_order_relaxed);
    return owner == tls_slot || owner == tagged(tls_slot, Manner::kExtended);
  }
  // Under the queue's mutex: if the calling thread is the owner, there is no owner any more. Only
  // an owner has hot sections, so this thread need not look for those of others.
  void give_up_own() {
    if (has_owner() && is_own()) set_nobody();
  }

  // Under the queue's mutex: whether no hot section is running, and none can begin until the mutex
  // is released.
  bool is_quiet() const {
    return owner_.load(std::memory_order_acquire) == nullptr &&
           revokers_.load(std::memory_order_acquire) == 0;
  }
  // Without the mutex: stops the owner, and returns when its section has ended. No thread can
  // become the owner meanwhile.
  [[gnu::cold]] void revoke(const void* queue);
  // revoke() in two halves, for several queues with one wait_until_left() in between. The caller
  // may hold the mutex in either half, but not while it waits. Between them, all other users of the
  // queue wait.
  void revoke_begin() {
    revokers_.fetch_add(1, std::memory_order_acq_rel);
    set_nobody();
  }
  void revoke_end() { revokers_.fetch_sub(1, std::memory_order_release); }

 private:
  // A slot is aligned to a cache line, so the low bits of its address are free for the manner.
  static ThreadSlot* tagged(ThreadSlot* slot, Manner manner) {
    return reinterpret_cast<ThreadSlot*>(reinterpret_cast<uintptr_t>(slot) |
                                         static_cast<uintptr_t>(manner));
  }

  std::atomic<ThreadSlot*> owner_{nullptr};  // with the manner in its low bits
  // How many threads are inside revoke(): there is no owner any more, but its last section may
  // still run.
  std::atomic<int> revokers_{0};
  bool shared_ = false;  // under the queue's mutex
};

// The calling thread's own slot, which is made if there is none. nullptr: memory is short, or this
// system has no membarrier(2). Without it no queue is ever biased, and each call takes the queue's
// mutex.
[[gnu::cold]] ThreadSlot* thread_slot_get();

// After revoke_begin() on each of `queues`: returns when all sections are over that lie within one
// call of the application; these are short. The caller must not hold a mutex that a hot section may
// want, since it may wait for a section inside which a thread wants it.
//
// A batch that a thread builds may be open for as long as the application likes, so it is not
// waited for: when this function has returned, is_built_on() tells.
[[gnu::cold]] void wait_until_left(const void* const* queues, size_t count);
// Whether another thread builds a batch on this send queue in the hot way.
[[gnu::cold]] bool is_built_on(const void* queue);
// Whether the calling thread does.
inline bool builds_on(const void* queue) {
  return tls_slot->building.load(std::memory_order_relaxed) == queue;
}

// Makes each thread of the process execute a full barrier. What the caller has stored before is
// seen by all that they load from here on; what they had stored before they loaded an old value is
// seen by the caller.
[[gnu::cold]] void barrier_everywhere();

// The system calls of barrier_everywhere(), which tests replace: membarrier(2), and what is done
// instead when it fails after queues have been biased. Null pointers bring the real calls back.
// barrier_calls_set() returns the calls that were set before.
struct BarrierCalls {
  int (*membarrier)(int command);
  void (*wait_for_stores)();
};
BarrierCalls barrier_calls_set(const BarrierCalls& other);

// Locks the queue's mutex when every hot section is over. `share`: the caller competes with the
// owner for the use of the queue, so both take the mutex from now on. (A caller that merely meets a
// revocation does not: the queue keeps its owner.)
template <typename Queue>
[[gnu::cold]] std::unique_lock<FairMutex> lock_queue(Queue& queue, bool share = false) {
  for (Backoff backoff;;) {
    share ? queue.mutex.lock_behind() : queue.mutex.lock();
    std::unique_lock lock(queue.mutex, std::adopt_lock);
    queue.bias.give_up_own();
    if (queue.bias.is_quiet()) return lock;
    const bool has_owner = queue.bias.has_owner();
    if (share && has_owner && !queue.bias.is_own()) queue.bias.set_shared();
    lock.unlock();
    if (has_owner) {
      queue.bias.revoke(&queue);
    } else {
      backoff.wait();  // another thread revokes, and waits for the section
    }
  }
}

}  // namespace shift::group

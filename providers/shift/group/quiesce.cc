#include "group/quiesce.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "util/backoff.h"
#include "util/log.h"

namespace shift::group {

constinit ThreadSlot unregistered_slot;
constinit thread_local ThreadSlot* tls_slot = &unregistered_slot;

namespace {

// A list to which slots are only added, so readers walk it without a lock.
constinit std::atomic<ThreadSlot*> slots{nullptr};
pthread_key_t slot_key;
// Whether queues may be biased: the kernel has membarrier(2), and it has not failed yet.
constinit std::atomic<bool> membarrier_works{false};
// Whether queues may have been biased at any time.
constinit std::atomic<bool> membarrier_worked{false};

int membarrier(int command) {
  return static_cast<int>(syscall(SYS_membarrier, command, 0, 0));
}

// A processor's stores reach the other processors much sooner than this, whatever it does
// meanwhile.
void wait_for_stores() {
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

constinit BarrierCalls calls{membarrier, wait_for_stores};

void slot_release(void* value) {
  auto* slot = static_cast<ThreadSlot*>(value);
  tls_slot = &unregistered_slot;
  slot->active.store(nullptr, std::memory_order_release);
  slot->building.store(nullptr, std::memory_order_release);
  slot->taken.store(false, std::memory_order_release);
}

// A fork child has only one thread: the sections of the other threads will never end there.
void forget_other_threads() {
  for (ThreadSlot* s = slots.load(std::memory_order_acquire); s != nullptr; s = s->next) {
    if (s == tls_slot) continue;
    s->active.store(nullptr, std::memory_order_relaxed);
    s->building.store(nullptr, std::memory_order_relaxed);
    s->taken.store(false, std::memory_order_relaxed);
  }
}

bool init_once() {
  if (pthread_key_create(&slot_key, slot_release) != 0) return false;
  pthread_atfork(nullptr, nullptr, forget_other_threads);
  const bool works = calls.membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
  membarrier_worked = works;
  membarrier_works = works;
  return works;
}

}  // namespace

ThreadSlot* thread_slot_get() {
  if (tls_slot != &unregistered_slot) return tls_slot;
  static const bool works = init_once();
  if (!works) return nullptr;
  ThreadSlot* slot = slots.load(std::memory_order_acquire);
  for (; slot != nullptr; slot = slot->next) {
    bool free = false;
    if (slot->taken.compare_exchange_strong(free, true, std::memory_order_acq_rel)) break;
  }
  if (slot == nullptr) {
    slot = new (std::nothrow) ThreadSlot;
    if (slot == nullptr) return nullptr;
    slot->taken.store(true, std::memory_order_relaxed);
    slot->next = slots.load(std::memory_order_relaxed);
    while (!slots.compare_exchange_weak(slot->next, slot, std::memory_order_acq_rel)) {
    }
  }
  if (pthread_setspecific(slot_key, slot) != 0) {
    slot->taken.store(false, std::memory_order_release);
    return nullptr;
  }
  tls_slot = slot;
  return slot;
}

void Bias::adopt(const void* queue, Manner manner) {
  if (shared_ || revokers_.load(std::memory_order_acquire) != 0) return;
  if (!membarrier_works.load(std::memory_order_relaxed) && membarrier_worked) return;
  ThreadSlot* self = thread_slot_get();
  if (self == nullptr) return;
  if (owner_.load(std::memory_order_relaxed) == nullptr) {
    owner_.store(tagged(self, manner), std::memory_order_relaxed);
  }
}

namespace {

// Whether this part of another thread's slot names the queue. A thread need not wait for its own
// section.
bool is_named(std::atomic<const void*> ThreadSlot::*part, const void* queue) {
  for (ThreadSlot* s = slots.load(std::memory_order_acquire); s != nullptr; s = s->next) {
    if (s != tls_slot && (s->*part).load(std::memory_order_acquire) == queue) return true;
  }
  return false;
}

bool is_worked_on(const void* queue) {
  return is_named(&ThreadSlot::active, queue) || is_built_on(queue);
}

}  // namespace

bool is_built_on(const void* queue) {
  return is_named(&ThreadSlot::building, queue);
}

void barrier_everywhere() {
  if (membarrier_works.load(std::memory_order_relaxed)) {
    if (calls.membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
    // The program has since entered a sandbox that forbids the call. No queue is biased from here
    // on.
    membarrier_works = false;
    SHIFT_WARN_LIMITED("membarrier(2) fails (errno %d): the healthy path takes locks from now on",
                       errno);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // If no queue was ever biased, the mutexes order everything but single flags.
  if (membarrier_worked) calls.wait_for_stores();
}

BarrierCalls barrier_calls_set(const BarrierCalls& other) {
  if (other.membarrier == nullptr) {
    membarrier_works = membarrier_worked.load();
    return std::exchange(calls, BarrierCalls{membarrier, wait_for_stores});
  }
  return std::exchange(calls, other);
}

void wait_until_left(const void* const* queues, size_t count) {
  barrier_everywhere();
  for (size_t i = 0; i < count; i++) {
    for (Backoff backoff; is_named(&ThreadSlot::active, queues[i]);) backoff.wait();
  }
}

void Bias::revoke(const void* queue) {
  revoke_begin();
  barrier_everywhere();
  for (Backoff backoff; is_worked_on(queue);) backoff.wait();
  revoke_end();
}

}  // namespace shift::group

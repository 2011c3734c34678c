// Hooks in the operations of libibverbs' objects.
#include "host/poll_hook.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "uverbs/memory_check.h"

namespace cxemu {
namespace {

std::atomic<Engine*> g_engine;

// Returns whether it is worthwhile to poll the queue again.
[[gnu::noinline]] bool engine_drive() {
  Engine* engine = g_engine.load(std::memory_order_acquire);
  if (engine == nullptr) return false;
  const int saved = errno;
  engine->drive();
  errno = saved;
  return true;
}

using PollCq = int (*)(ibv_cq*, int, ibv_wc*);
using StartPoll = int (*)(ibv_cq_ex*, ibv_poll_cq_attr*);

// A provider has only a few different functions. Each gets its own hook, which knows the original
// without a look-up.
template <typename Function, size_t kCount>
struct Originals {
  // The hook's index, or kCount when all are taken.
  size_t index(Function original) {
    for (size_t i = 0; i < kCount; ++i) {
      Function expected = nullptr;
      if (functions[i].compare_exchange_strong(expected, original) || expected == original)
        return i;
    }
    return kCount;
  }
  // For a hook that runs. It was installed after its original was stored, and the pointer that led
  // to the hook was read before: the fence keeps the two reads in this order.
  Function of_hook(size_t index) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return functions[index].load(std::memory_order_relaxed);
  }
  std::array<std::atomic<Function>, kCount> functions;
};

Originals<PollCq, 8> g_poll_cq;
Originals<StartPoll, 64> g_start_poll;

template <size_t kIndex>
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  const PollCq original = g_poll_cq.of_hook(kIndex);
  const int found = original(cq, count, wc);
  if (found != 0 || !engine_drive()) return found;
  return original(cq, count, wc);
}

template <size_t kIndex>
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  const StartPoll original = g_start_poll.of_hook(kIndex);
  const int result = original(cq, attr);
  if (result != ENOENT || !engine_drive()) return result;
  return original(cq, attr);
}

template <size_t... kIndices>
constexpr auto poll_hooks(std::index_sequence<kIndices...>) {
  return std::array<PollCq, sizeof...(kIndices)>{poll_cq<kIndices>...};
}
template <size_t... kIndices>
constexpr auto start_hooks(std::index_sequence<kIndices...>) {
  return std::array<StartPoll, sizeof...(kIndices)>{start_poll<kIndices>...};
}
constexpr auto kPollHooks = poll_hooks(std::make_index_sequence<8>());
constexpr auto kStartHooks = start_hooks(std::make_index_sequence<64>());

// Puts the matching hook in place of *function, unless a hook is there already.
template <typename Function, size_t kCount>
void hook_install(Function* function, Originals<Function, kCount>* originals,
                  const std::array<Function, kCount>& hooks) {
  const Function current = __atomic_load_n(function, __ATOMIC_ACQUIRE);
  if (current == nullptr) return;
  for (const Function hook : hooks)
    if (current == hook) return;
  const size_t index = originals->index(current);
  if (index < kCount) __atomic_store_n(function, hooks[index], __ATOMIC_RELEASE);
}

// Whether two functions are in the same library. Unlike dladdr this takes no lock: a library that
// is being loaded may issue commands.
bool library_same(void* one, void* other) {
#if __GLIBC_PREREQ(2, 35)
  dl_find_object first, second;
  return _dl_find_object(one, &first) == 0 && _dl_find_object(other, &second) == 0 &&
         first.dlfo_map_start == second.dlfo_map_start;
#else
  return false;
#endif
}

// The command does not tell whether its queue is an extended one: libibverbs sends the same command
// for both when no flag needs more. libmlx5 allocates all queues large enough for an extended one,
// with a null start_poll in the others; with another provider, anything may follow the plain
// struct.
bool is_extended(uint64_t handle, PollCq poll_original) {
  ibv_cq_ex cq;
  return memory_read(&cq, handle, sizeof cq) && cq.start_poll != nullptr &&
         library_same(reinterpret_cast<void*>(cq.start_poll),
                      reinterpret_cast<void*>(poll_original));
}

// The original function in whose place `current` is.
template <typename Function, size_t kCount>
Function original_of(Function current, const Originals<Function, kCount>& originals,
                     const std::array<Function, kCount>& hooks) {
  for (size_t i = 0; i < kCount; ++i)
    if (current == hooks[i]) return originals.functions[i].load(std::memory_order_relaxed);
  return current;
}

enum class Verdict { kReady, kNotYet, kForeign };

// Whether `handle` is the address of a complete ibv_cq of the device file `fd`. It may be any
// number: only libibverbs makes handles that way.
Verdict handle_judge(uint64_t handle, int fd) {
  ibv_cq cq;
  ibv_context context;
  if (!memory_read(&cq, handle, sizeof cq)) return Verdict::kForeign;
  if (cq.context == nullptr) return Verdict::kNotYet;
  if (!memory_read(&context, reinterpret_cast<uint64_t>(cq.context), sizeof context) ||
      context.cmd_fd != fd)
    return Verdict::kForeign;
  return Verdict::kReady;
}

}  // namespace

void PollHook::engine_set(Engine* engine) {
  g_engine.store(engine, std::memory_order_release);
}

Engine* PollHook::engine_get() {
  return g_engine.load(std::memory_order_acquire);
}

void PollHook::cq_destroyed(uint64_t user_handle) {
  std::erase(pending_, user_handle);
}

void PollHook::settle(int fd) {
  std::erase_if(pending_, [&](uint64_t handle) {
    const Verdict verdict = handle_judge(handle, fd);
    if (verdict == Verdict::kReady) {
      auto* cq = reinterpret_cast<ibv_cq*>(handle);
      PollCq* poll = &cq->context->ops.poll_cq;
      if (is_extended(handle, original_of(*poll, g_poll_cq, kPollHooks)))
        hook_install(&reinterpret_cast<ibv_cq_ex*>(cq)->start_poll, &g_start_poll, kStartHooks);
      hook_install(poll, &g_poll_cq, kPollHooks);
    }
    return verdict != Verdict::kNotYet;
  });
}

}  // namespace cxemu

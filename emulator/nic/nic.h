// The NIC model: what a ConnectX does with the rings that the stock libmlx5 writes. One Nic object
// is one emulated device as one process sees it. There is no uverbs ABI in here (uverbs/ calls
// this), no file system and no libc interposition (host/ does that).
//
// Threads: every function below is called with the engine's lock held (Engine::lock()), unless its
// comment says otherwise. Memory handed over by pointer (rings, doorbell records, MR ranges)
// belongs to the application and stays mapped until the object is destroyed.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "fabric/fabric.h"
#include "nic/engine_lock.h"
#include "nic/memory_table.h"

namespace cxemu {

struct Cq;
struct Qp;
struct Srq;

// Receives what the device tells the host. uverbs/ implements it (it writes event descriptors into
// the context's pipes), as do fakes in unit tests. It is called with the engine's lock held and
// must not block.
class EventSink {
 public:
  virtual void completion(uint64_t cq_user_handle, int channel_fd) = 0;
  // element: user_handle of the QP, CQ or SRQ, or the port number. The caller counts the events of
  // each object.
  virtual void async_event(ibv_event_type type, uint64_t element) = 0;

 protected:
  ~EventSink() = default;
};

struct CqConfig {
  void* buffer;           // cqe_count * cqe_size bytes, cqe_size 64 or 128
  volatile uint32_t* db;  // [0] consumer index, [1] arm (big endian)
  uint32_t cqe_count;     // power of two
  uint32_t cqe_size;
  bool ignore_overrun = false;  // the application ensures that nothing is overwritten
  uint64_t user_handle;
  int channel_fd;  // read end of the completion channel, -1: none; passed back to EventSink
  EventSink* sink;
};

struct SrqConfig {
  void* buffer;           // wqe_count << wqe_shift bytes
  volatile uint32_t* db;  // counts posted entries (big endian)
  uint32_t wqe_count;     // power of two, at most 2^15
  uint32_t wqe_shift;     // at least 5: a link and one data segment
  uint64_t user_handle;
  uint32_t pd;
  EventSink* sink;
  // For an XRC queue: the CQ of its completions and its domain. Otherwise nullptr and 0.
  Cq* cq;
  uint32_t uidx;
  uint32_t xrcd;
};

struct QpConfig {
  ibv_qp_type type;  // RC, UC, UD, XRC_SEND, XRC_RECV; others refuse with EOPNOTSUPP
  void* rq_buffer;
  uint32_t rq_wqe_count, rq_wqe_shift;
  void* sq_buffer;
  uint32_t sq_wqe_count;
  volatile uint32_t* db;  // [0] receive PI, [1] send PI (big endian)
  uint32_t uidx;          // returned in every CQE
  uint64_t user_handle;
  Cq* send_cq;  // nullptr: XRC_RECV
  Cq* recv_cq;  // nullptr: XRC_SEND and XRC_RECV
  uint32_t pd;
  bool sq_sig_all;
  ibv_qp_cap cap;  // as asked, returned by qp_query
  EventSink* sink;
  Srq* srq = nullptr;  // the queue that receives come from, if it has no ring of its own
  uint32_t xrcd = 0;   // XRC_RECV: its domain
};

// One process's view of one NIC.
class Nic {
 public:
  virtual ~Nic() = default;

  // Errors of all calls: 0 or a positive errno, as the kernel driver would return it; EIO when the
  // device is dead. Outputs are written on success only. mr_register returns EINVAL for access bits
  // that contradict each other, and EFAULT for memory that is not mapped.
  virtual int mr_register(uint32_t pd, uint64_t start, uint64_t length, uint64_t iova,
                          uint32_t access, uint32_t* lkey_and_rkey) = 0;
  virtual int mr_deregister(uint32_t key) = 0;  // EBUSY while windows are bound to it
  virtual int mr_reregister(uint32_t key, const RegionChange&, uint32_t* new_key) = 0;
  // A memory window that is not bound yet. Work requests bind it, which changes the key's low byte.
  virtual int mw_allocate(uint32_t pd, bool type2, uint32_t* rkey) = 0;
  virtual int mw_deallocate(uint32_t rkey) = 0;  // bound or not; the low byte is ignored

  virtual int cq_create(const CqConfig&, Cq** out) = 0;
  virtual int cq_destroy(Cq*) = 0;  // EBUSY while a QP uses it
  // Continues in another ring. The application copies what is left in the old ring, where a last
  // entry marks the end. Returns EINVAL when the new ring could not hold what is left.
  virtual int cq_resize(Cq*, void* buffer, uint32_t cqe_count, uint32_t cqe_size) = 0;
  virtual uint32_t cq_number(const Cq*) const = 0;
  virtual uint32_t cq_comp_events(const Cq*) const = 0;  // events raised so far
  virtual uint32_t cq_async_events(const Cq*) const = 0;

  virtual int srq_create(const SrqConfig&, Srq** out) = 0;
  virtual int srq_destroy(Srq*) = 0;  // EBUSY while a QP uses it
  virtual uint32_t srq_number(const Srq*) const = 0;
  // The limit is the only attribute that can be changed. The call also raises the event if the
  // limit is reached already.
  virtual int srq_limit_set(Srq*, uint32_t limit) = 0;
  virtual int srq_limit_get(const Srq*, uint32_t* limit) const = 0;

  virtual int qp_create(const QpConfig&, Qp** out) = 0;
  virtual int qp_destroy(Qp*) = 0;
  virtual uint32_t qp_number(const Qp*) const = 0;
  virtual uint32_t qp_async_events(const Qp*) const = 0;
  // Applies the full state machine and attribute checks of IBA 10.3 and the kernel's
  // ib_modify_qp_is_ok.
  virtual int qp_modify(Qp*, const ibv_qp_attr&, int attr_mask) = 0;
  // Fills attr (sq_psn and rq_psn are the live values) and cap/sig in init.
  virtual int qp_query(const Qp*, ibv_qp_attr*, ibv_qp_init_attr*) const = 0;

  // True once the NIC was killed after this Nic was opened: it will never work again.
  virtual bool dead() const = 0;
};

// Owns the process's engine thread, its packet carrier, and all its Nics.
class Engine {
 public:
  // Starts the thread. `fabric` must outlive the engine; `slot` comes from Fabric::process_join.
  // Returns nullptr and errno on failure.
  static std::unique_ptr<Engine> start(Fabric& fabric, int slot) {
    return start(*fabric.operator->(), slot);
  }
  static std::unique_ptr<Engine> start(FabricFile& fabric, int slot);
  virtual ~Engine() = default;  // stops and joins the thread

  // Use with std::lock_guard. In a forked child it is free and stays usable.
  virtual EngineLock& lock() = 0;
  // Opens the NIC for a new context. `port_sink` gets PORT_ERR, PORT_ACTIVE (element 1) and
  // DEVICE_FATAL. Returns nullptr when the NIC is dead at the moment (kDead). The Nic must be
  // destroyed with the lock held, after its QPs and CQs or together with the remaining ones, and
  // before the Engine.
  virtual std::unique_ptr<Nic> nic_open(FabricNic*, EventSink* port_sink) = 0;

  // Runs one bounded pass of the engine in the calling thread if no other thread runs it. It tries
  // to take the lock itself. Returns whether any work was done. Thread-safe. Threads of polling
  // applications use it, so that two pollers on two cores do not starve the NIC.
  virtual bool drive() = 0;
  // Wakes a sleeping engine thread (doorbells are plain memory writes and do not wake it).
  virtual void wake() = 0;
  // Called when the process is about to end: works until what was posted is answered and what came
  // is acknowledged, or until there is no progress for a while. A real NIC does so while the kernel
  // still tears the process down. Returns whether nothing is left. Thread-safe.
  virtual bool finish() = 0;
  // In a child of fork() the engine is gone: nothing moves, and every Nic is dead(). Contexts that
  // the child opens need a new Engine (with a slot of its own).
  virtual bool gone() const = 0;
};

}  // namespace cxemu

// Objects of one context and their handles. A handle is valid in one context only, as in the
// kernel. An object that others use cannot be destroyed (EBUSY).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nic/nic.h"
#include "uverbs/device_pages.h"
#include "uverbs/event_pipe.h"

namespace cxemu {

enum class ObjectType : uint8_t { kPd, kMr, kMw, kDm, kUar, kAh, kXrcd, kCq, kSrq, kQp };

struct Object {
  explicit Object(ObjectType t) : type(t) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  const ObjectType type;
  uint32_t users = 0;  // how many live objects were made with this one
};

struct PdObject : Object {
  static constexpr ObjectType kType = ObjectType::kPd;
  explicit PdObject(uint32_t n) : Object(kType), number(n) {}
  const uint32_t number;
};

// A part of the device's own memory.
struct DmObject : Object {
  static constexpr ObjectType kType = ObjectType::kDm;
  DmObject(const DevicePages* p, size_t o, size_t l)
      : Object(kType), pages(p), offset(o), length(l) {}
  ~DmObject() override { pages->allocations().free(offset, length); }
  const DevicePages* const pages;
  const size_t offset, length;
};

struct MrObject : Object {
  static constexpr ObjectType kType = ObjectType::kMr;
  MrObject(PdObject* p, uint32_t k, uint64_t s, uint64_t l, uint64_t i, uint32_t a)
      : Object(kType), pd(p), key(k), start(s), length(l), iova(i), access(a) {
    ++pd->users;
  }
  ~MrObject() override {
    --pd->users;
    if (memory != nullptr) --memory->users;
  }
  void memory_set(DmObject* dm) {
    memory = dm;
    ++dm->users;
  }
  void pd_change(PdObject* to) {
    --pd->users;
    pd = to;
    ++pd->users;
  }
  PdObject* pd;
  uint32_t key;
  uint64_t start, length, iova;
  uint32_t access;
  DmObject* memory = nullptr;  // its device memory; else it is in the application's
};

struct MwObject : Object {
  static constexpr ObjectType kType = ObjectType::kMw;
  MwObject(PdObject* p, uint32_t k) : Object(kType), pd(p), key(k) { ++pd->users; }
  ~MwObject() override { --pd->users; }
  PdObject* const pd;
  const uint32_t key;  // as allocated; binding changes the low byte
};

// A register page that the application asked for.
class Context;
struct UarObject : Object {
  static constexpr ObjectType kType = ObjectType::kUar;
  UarObject(Context* c, uint32_t i) : Object(kType), context(c), index(i) {}
  ~UarObject() override;
  Context* const context;
  const uint32_t index;
};

struct AhObject : Object {
  static constexpr ObjectType kType = ObjectType::kAh;
  explicit AhObject(PdObject* p) : Object(kType), pd(p) { ++pd->users; }
  ~AhObject() override { --pd->users; }
  PdObject* const pd;
};

// A file that names XRC domains, while a domain is open under its name (cmd_xrc.cc).
struct XrcdFile {
  XrcdFile(uint64_t d, uint64_t i, int fd) : device(d), inode(i), claim_fd(fd) {}
  ~XrcdFile();
  XrcdFile(const XrcdFile&) = delete;
  XrcdFile& operator=(const XrcdFile&) = delete;
  const uint64_t device, inode;
  const int claim_fd;
};

// Connects extended reliable connections with the receive queues that they may name.
struct XrcdObject : Object {
  static constexpr ObjectType kType = ObjectType::kXrcd;
  XrcdObject(uint32_t n, std::shared_ptr<XrcdFile> f)
      : Object(kType), number(n), file(std::move(f)) {}
  const uint32_t number;  // number of the domain: equal for all domains opened by one file
  const std::shared_ptr<XrcdFile> file;
};

// Completion queues, receive queues and queue pairs are event sinks themselves, so that events are
// counted per object.
struct CqObject : Object, EventSink {
  static constexpr ObjectType kType = ObjectType::kCq;
  CqObject() : Object(kType) {}
  void completion(uint64_t cq_user_handle, int channel_fd) override;
  void async_event(ibv_event_type type, uint64_t element) override;

  Cq* cq = nullptr;
  uint32_t cqe_size = 0;
  uint64_t user_handle = 0;
  std::shared_ptr<EventPipe> channel;  // shared with the application and its CQs
  std::shared_ptr<EventPipe> async;
  uint32_t completions = 0, async_events = 0;  // events that entered the pipes
};

struct SrqObject : Object, EventSink {
  static constexpr ObjectType kType = ObjectType::kSrq;
  SrqObject(PdObject* p, CqObject* c, XrcdObject* x) : Object(kType), pd(p), cq(c), xrcd(x) {
    ++pd->users;
    if (cq != nullptr) ++cq->users;
    if (xrcd != nullptr) ++xrcd->users;
  }
  ~SrqObject() override {
    --pd->users;
    if (cq != nullptr) --cq->users;
    if (xrcd != nullptr) --xrcd->users;
  }
  void completion(uint64_t, int) override {}
  void async_event(ibv_event_type type, uint64_t element) override;

  PdObject* const pd;
  CqObject* const cq;  // `cq` and `xrcd` are for an XRC queue only
  XrcdObject* const xrcd;
  Srq* srq = nullptr;
  uint32_t max_wr = 0, max_sge = 0;
  uint64_t user_handle = 0;
  std::shared_ptr<EventPipe> async;
  uint32_t async_events = 0;
};

// The objects that make up a queue pair; its type determines which of them exist.
struct QpParts {
  PdObject* pd = nullptr;
  CqObject* send_cq = nullptr;
  CqObject* recv_cq = nullptr;
  SrqObject* srq = nullptr;
  XrcdObject* xrcd = nullptr;

  bool own_receives() const { return recv_cq != nullptr && srq == nullptr; }
  void users_add(uint32_t change) const {
    if (pd != nullptr) pd->users += change;
    if (send_cq != nullptr) send_cq->users += change;
    if (recv_cq != nullptr) recv_cq->users += change;
    if (srq != nullptr) srq->users += change;
    if (xrcd != nullptr) xrcd->users += change;
  }
};

struct QpObject : Object, EventSink {
  static constexpr ObjectType kType = ObjectType::kQp;
  explicit QpObject(const QpParts& made_of) : Object(kType), parts(made_of) { parts.users_add(1); }
  ~QpObject() override { parts.users_add(-1u); }
  void completion(uint64_t, int) override {}
  void async_event(ibv_event_type type, uint64_t element) override;

  const QpParts parts;
  uint8_t qp_type = 0;
  Qp* qp = nullptr;
  uint64_t user_handle = 0;
  std::shared_ptr<EventPipe> async;
  uint32_t async_events = 0;
};

// Writes an asynchronous event record; returns false when it was lost.
bool async_event_push(EventPipe&, ibv_event_type, uint64_t element);

class HandleTable {
 public:
  uint32_t add(std::unique_ptr<Object>);
  void remove(uint32_t handle);
  // Returns nullptr if there is no such handle or it is of another type.
  template <typename T>
  T* find(uint32_t handle) const {
    if (handle >= objects_.size() || !objects_[handle] || objects_[handle]->type != T::kType)
      return nullptr;
    return static_cast<T*>(objects_[handle].get());
  }
  template <typename T, typename Visit>
  void each(const Visit& visit) const {
    for (const auto& object : objects_)
      if (object && object->type == T::kType) visit(static_cast<T*>(object.get()));
  }
  void remove_all(ObjectType type);
  size_t size() const { return count_; }

 private:
  std::vector<std::unique_ptr<Object>> objects_;  // index: handle
  size_t first_free_ = 0;                         // no free handle below this one
  size_t count_ = 0;
};

}  // namespace cxemu

// A NIC and an engine that do nothing but record the calls.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "fabric/fabric.h"
#include "fabric/net.h"
#include "nic/nic.h"
#include "uverbs/device_pages.h"

namespace cxemu {

// The fakes' definitions of the opaque objects.
struct Cq {
  CqConfig config;
};
struct Srq {
  SrqConfig config;
  uint32_t limit = 0;
};
struct Qp {
  QpConfig config;
  ibv_qp_attr attr{};
  int attr_mask = 0;
};

class FakeNic final : public Nic {
 public:
  struct Log {
    std::set<uint32_t> keys, windows;
    RegionChange change;
    std::set<Cq*> cqs;
    std::set<Srq*> srqs;
    std::set<Qp*> qps;
    bool dead = false;
    int next_error = 0;  // what the next call that makes an object returns
  };
  explicit FakeNic(Log* log) : log_(log) {}

  int mr_register(uint32_t, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t* key) override {
    if (const int error = take_error()) return error;
    *key = ++last_key_ << 8;
    log_->keys.insert(*key);
    return 0;
  }
  int mr_deregister(uint32_t key) override { return log_->keys.erase(key) == 1 ? 0 : EINVAL; }
  int mr_reregister(uint32_t key, const RegionChange& change, uint32_t* new_key) override {
    if (const int error = take_error()) return error;
    if (!log_->keys.contains(key)) return EINVAL;
    log_->change = change;
    *new_key = key;
    return 0;
  }
  int mw_allocate(uint32_t, bool type2, uint32_t* key) override {
    if (const int error = take_error()) return error;
    *key = ++last_key_ << 8 | (type2 ? 2 : 1);
    log_->windows.insert(*key);
    return 0;
  }
  int mw_deallocate(uint32_t key) override { return log_->windows.erase(key) == 1 ? 0 : EINVAL; }
  int cq_create(const CqConfig& config, Cq** out) override {
    if (const int error = take_error()) return error;
    *out = new Cq{config};
    log_->cqs.insert(*out);
    return 0;
  }
  int cq_resize(Cq* cq, void* buffer, uint32_t cqe_count, uint32_t) override {
    if (const int error = take_error()) return error;
    cq->config.buffer = buffer;
    cq->config.cqe_count = cqe_count;
    return 0;
  }
  int cq_destroy(Cq* cq) override {
    if (log_->cqs.erase(cq) != 1) return EINVAL;
    delete cq;
    return 0;
  }
  uint32_t cq_number(const Cq*) const override { return 77; }
  uint32_t cq_comp_events(const Cq*) const override { return 0; }
  uint32_t cq_async_events(const Cq*) const override { return 0; }
  int srq_create(const SrqConfig& config, Srq** out) override {
    if (const int error = take_error()) return error;
    *out = new Srq{config};
    log_->srqs.insert(*out);
    return 0;
  }
  int srq_destroy(Srq* srq) override {
    if (log_->srqs.erase(srq) != 1) return EINVAL;
    delete srq;
    return 0;
  }
  uint32_t srq_number(const Srq*) const override { return 99; }
  int srq_limit_set(Srq* srq, uint32_t limit) override {
    if (const int error = take_error()) return error;
    srq->limit = limit;
    return 0;
  }
  int srq_limit_get(const Srq* srq, uint32_t* limit) const override {
    *limit = srq->limit;
    return 0;
  }
  int qp_create(const QpConfig& config, Qp** out) override {
    if (const int error = take_error()) return error;
    *out = new Qp{config};
    log_->qps.insert(*out);
    return 0;
  }
  int qp_destroy(Qp* qp) override {
    if (log_->qps.erase(qp) != 1) return EINVAL;
    delete qp;
    return 0;
  }
  uint32_t qp_number(const Qp*) const override { return 0x10005; }
  uint32_t qp_async_events(const Qp*) const override { return 0; }
  int qp_modify(Qp* qp, const ibv_qp_attr& attr, int mask) override {
    if (const int error = take_error()) return error;
    qp->attr = attr;
    qp->attr_mask = mask;
    return 0;
  }
  int qp_query(const Qp* qp, ibv_qp_attr* attr, ibv_qp_init_attr* init) const override {
    *attr = qp->attr;
    init->cap = qp->config.cap;
    init->sq_sig_all = qp->config.sq_sig_all;
    return 0;
  }
  bool dead() const override { return log_->dead; }

 private:
  int take_error() { return std::exchange(log_->next_error, 0); }

  Log* const log_;
  uint32_t last_key_ = 0;
};

class FakeEngine final : public Engine {
 public:
  EngineLock& lock() override { return lock_; }
  std::unique_ptr<Nic> nic_open(FabricNic* nic, EventSink* sink) override {
    if (nic->faults & kDead) return nullptr;
    port_sink = sink;
    return std::make_unique<FakeNic>(&log);
  }
  bool drive() override { return false; }
  void wake() override {}
  bool gone() const override { return false; }
  bool finish() override { return true; }

  FakeNic::Log log;
  EventSink* port_sink = nullptr;

 private:
  EngineLock lock_;
};

// What a device file's mapping shows.
class TestPages {
 public:
  TestPages()
      : base_(static_cast<uint8_t*>(mmap(nullptr, device_pages_size(), PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~TestPages() { munmap(base_, device_pages_size()); }
  uint8_t* data() const { return base_; }

 private:
  uint8_t* const base_;
};

// A fabric with host "a" (two NICs) and host "b" (one).
class TestFabric {
 public:
  TestFabric() {
    std::string dir = std::filesystem::temp_directory_path() / "cxemu-test-XXXXXX";
    if (mkdtemp(dir.data()) == nullptr) std::abort();
    dir_ = dir;
    std::string error;
    fabric = Fabric::open_or_create(dir_ + "/fabric", &error);
    if (!fabric) std::abort();
    fabric.host_ensure("a", 2);
    fabric.host_ensure("b", 1);
  }
  ~TestFabric() {
    net_release("/tmp", fabric->net, dir_ + "/fabric");
    std::filesystem::remove_all(dir_);
  }
  Fabric fabric;

 private:
  std::string dir_;
};

}  // namespace cxemu

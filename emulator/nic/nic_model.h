// One process's view of one NIC: the objects it holds, and their checks.
#pragma once

#include <memory>
#include <vector>

#include "nic/held_writes.h"
#include "nic/memory_table.h"
#include "nic/nic.h"
#include "nic/qp.h"

namespace cxemu {

class EngineCore;

class NicModel final : public Nic {
 public:
  NicModel(EngineCore& core, FabricNic& fabric_nic, EventSink* port_sink);
  ~NicModel() override;

  int mr_register(uint32_t pd, uint64_t start, uint64_t length, uint64_t iova, uint32_t access,
                  uint32_t* lkey_and_rkey) override;
  int mr_deregister(uint32_t key) override;
  int mr_reregister(uint32_t key, const RegionChange&, uint32_t* new_key) override;
  int mw_allocate(uint32_t pd, bool type2, uint32_t* rkey) override;
  int mw_deallocate(uint32_t rkey) override;
  int cq_create(const CqConfig&, Cq** out) override;
  int cq_resize(Cq*, void* buffer, uint32_t cqe_count, uint32_t cqe_size) override;
  int cq_destroy(Cq*) override;
  uint32_t cq_number(const Cq* cq) const override { return cq->number(); }
  uint32_t cq_comp_events(const Cq* cq) const override { return cq->comp_events(); }
  uint32_t cq_async_events(const Cq* cq) const override { return cq->async_events(); }
  int srq_create(const SrqConfig&, Srq** out) override;
  int srq_destroy(Srq*) override;
  uint32_t srq_number(const Srq* srq) const override { return srq->number; }
  int srq_limit_set(Srq*, uint32_t limit) override;
  int srq_limit_get(const Srq*, uint32_t* limit) const override;
  int qp_create(const QpConfig&, Qp** out) override;
  int qp_destroy(Qp*) override;
  uint32_t qp_number(const Qp* qp) const override { return qp->number; }
  uint32_t qp_async_events(const Qp* qp) const override { return qp->async_events; }
  int qp_modify(Qp*, const ibv_qp_attr&, int attr_mask) override;
  int qp_query(const Qp*, ibv_qp_attr*, ibv_qp_init_attr*) const override;
  bool dead() const override;

  // Compares the fabric's state with what was last seen and informs the port sink.
  void fabric_check(uint64_t now_ns);

  FabricNic& fabric() { return fabric_nic_; }
  MemoryTable& memory() { return memory_; }
  HeldWrites& held_writes() { return held_writes_; }
  const std::vector<std::unique_ptr<Cq>>& cqs() const { return cqs_; }
  EngineCore& core() { return core_; }
  // The XRC queue with this number in this domain, or nullptr.
  Srq* srq_find(uint32_t number, uint32_t xrcd) const;

 private:
  void port_event(ibv_event_type type) { port_sink_->async_event(type, 1); }
  void address_follow();
  void link_check(bool same_schedule, uint64_t now_ns);

  EngineCore& core_;
  FabricNic& fabric_nic_;
  EventSink* port_sink_;
  const uint32_t kills_at_open_;
  uint32_t generation_seen_;
  uint32_t gids_seen_;
  uint64_t flap_edges_seen_ = 0;
  uint32_t second_address_be_ = 0;  // after a change of GIDs; 0: none
  bool link_up_;
  bool fatal_told_ = false;
  MemoryTable memory_;
  HeldWrites held_writes_{hold_writes_ns()};
  std::vector<std::unique_ptr<Cq>> cqs_;
  std::vector<std::unique_ptr<Srq>> srqs_;
  std::vector<Qp*> qps_;  // owned by the core's table
  uint32_t next_cq_number_ = 1;
  uint32_t next_srq_number_ = 1;
};

// The state machine of ibv_modify_qp: 0 or EINVAL. Checks only.
int qp_modify_check(const Qp& qp, const ibv_qp_attr& attr, int mask, ibv_qp_state* next);

}  // namespace cxemu

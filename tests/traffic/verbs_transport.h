// The transport over libibverbs: one device, one PD, all queue pairs of the run.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "options.h"
#include "report.h"
#include "transport.h"

namespace traffic {

// What the other end needs to connect one QP.
struct QpAddress {
  uint32_t qp_num = 0;
  uint32_t psn = 0;
  ibv_gid gid{};
};

class VerbsTransport : public Transport {
 public:
  VerbsTransport(const Traffic& traffic, const Local& local, bool is_client, Report* report)
      : traffic_(traffic), local_(local), is_client_(is_client), report_(report) {}
  ~VerbsTransport() override;

  // Returns false when something failed, which is in the report.
  bool open();
  QpAddress address(uint32_t qp) const;
  bool connect(uint32_t qp, const QpAddress& remote);

  Region region_add(size_t size) override;
  int post_send(uint32_t qp, std::span<const SendRequest> requests, size_t* posted) override;
  int post_receive(uint32_t qp, std::span<const ReceiveRequest> requests) override;
  int poll(std::span<ibv_wc> out) override;
  uint32_t qp_number(uint32_t qp) const override { return qps_[qp]->qp_num; }

  // Asks for an event at the next completion. The caller must poll once more before it sleeps.
  bool arm();
  // Sleeps until a completion event, a line on `side_fd`, or the time limit.
  void wait_events(int side_fd, uint32_t timeout_ms);
  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  // Checks, after a run without errors, that nothing changed that the application can see (C9).
  void inspect();

 private:
  bool fail(const char* what);
  bool cqs_make();
  ibv_cq* cq_make(int size);
  int poll_extended(ibv_cq_ex* cq, std::span<ibv_wc> out);
  bool qp_make(uint32_t qp);
  ibv_qp* qp_create(ibv_qp_init_attr* init);
  bool qp_to_init(ibv_qp* qp);
  bool qp_to_rtr(ibv_qp* qp, const QpAddress& remote);
  bool qp_to_rts(ibv_qp* qp, uint32_t psn);
  uint32_t sges_make(std::byte* local, uint32_t length, uint32_t lkey, ibv_sge* out) const;
  unsigned flags_of(const SendRequest& request) const;
  int post_classic(uint32_t qp, std::span<const SendRequest> requests, size_t* posted);
  int post_wr(uint32_t qp, std::span<const SendRequest> requests, size_t* posted);
  void wr_build(ibv_qp_ex* qp, const SendRequest& request);

  const Traffic traffic_;
  const Local local_;
  const bool is_client_;
  Report* const report_;
  ibv_context* context_ = nullptr;
  ibv_port_attr port_{};
  ibv_gid gid_{};
  ibv_gid_entry gid_entry_{};
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  std::array<ibv_cq*, 2> cqs_{};  // for sends and for receives; with one_cq it is one CQ
  std::array<uint32_t, 2> unacked_events_{};
  ibv_srq* srq_ = nullptr;
  std::vector<ibv_qp*> qps_;
  std::vector<uint32_t> psns_;
  std::vector<uint32_t> qp_numbers_;  // as they were at creation
  struct Memory {
    void* base;
    size_t size;
    ibv_mr* mr;
    uint32_t lkey, rkey;  // as they were at registration
  };
  std::vector<Memory> memory_;
};

}  // namespace traffic

// NICs without hardware, beneath the virtual objects. A CQ gives the completions that a test puts
// into it, a QP remembers what is posted, and the stock library is a table of fake functions.
#pragma once

#include <infiniband/verbs.h>

#include <climits>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "group/stock.h"
#include "wire/names.h"

namespace shift::group {

struct FakeNic;

struct FakeCq {
  ibv_cq cq{};  // first, because the fake functions get a pointer to it
  std::deque<ibv_wc> waiting;
  int notify_requests = 0;
  int last_notify_solicited = -1;

  static FakeCq& of(ibv_cq* cq) { return *reinterpret_cast<FakeCq*>(cq); }
};

// A posted request, with copies of all that it points to.
struct PostedSend {
  ibv_send_wr wr;
  std::vector<ibv_sge> sges;
};
struct PostedRecv {
  uint64_t wr_id;
  std::vector<ibv_sge> sges;
};

// Receives are taken in the order of posting.
struct FakeSrq {
  ibv_srq srq{};  // first, as in FakeCq
  std::deque<PostedRecv> waiting;
  uint32_t limit = 0;
  int post_error = 0;  // the errno that a post returns

  static FakeSrq& of(ibv_srq* srq) { return *reinterpret_cast<FakeSrq*>(srq); }
};

struct FakeQp {
  ibv_qp qp{};
  FakeSrq* srq = nullptr;              // receives come from here, if it is set
  std::optional<uint64_t> half_taken;  // the receive of a message that did not end
  FakeCq* send_cq = nullptr;
  FakeCq* recv_cq = nullptr;
  std::vector<PostedSend> sends;  // all that were ever posted
  std::vector<PostedRecv> recvs;
  struct Pending {
    uint64_t wr_id;
    bool signaled;
    ibv_wc_opcode opcode;
    size_t index;  // in `sends`
  };
  std::deque<Pending> pending_sends;  // those that have not completed
  bool all_signaled = false;
  std::deque<uint64_t> pending_recvs;
  int modify_error = 0;            // the errno that modify_qp returns
  int post_error = 0;              // the errno that a post returns
  int doorbell_error = 0;          // like post_error, but all requests are in the send queue
  int sends_accepted = INT_MAX;    // after so many, a post returns ENOMEM
  int query_error = 0;             // the errno that query_qp returns
  uint32_t expected_psn = 0;       // by its responder
  bool flushes = true;             // in ERR; a dead device gives no completions
  bool overlooks = false;          // overlooks receives posted in ERR, until ERR is entered again
  ibv_qp_attr attr{};              // as modify_qp has set them
  std::vector<ibv_qp_state> walk;  // the states it was brought to
  // How many were posted when the QP was last brought to ERR.
  size_t sends_at_error = 0, recvs_at_error = 0;

  static FakeQp& of(ibv_qp* qp) { return *reinterpret_cast<FakeQp*>(qp); }
  bool in_error() const { return qp.state == IBV_QPS_ERR; }
  // Completes the oldest pending send that is signaled, and the sends before it. False: there is
  // none.
  bool complete_send();
  bool complete_recv(uint32_t byte_len = 8);
  // Lets the first packet of a message take a receive from the shared queue.
  void take_half();
  // Completes the oldest pending send with an error; all later ones are flushed.
  void break_with(ibv_wc_status status);
  void flush();
};

// One NIC of a host, with the real context that stands for it.
struct FakeNic {
  verbs_context verbs{};
  ibv_device device{};
  ibv_pd pd{};
  wire::Gid gid;
  uint32_t gid_index = 3;
  wire::Gid link_local;  // at index 0 for RoCE v1 and at 1 for v2; zero: there is none
  uint32_t ifindex = 0;  // the network device that holds the address
  // Further addresses, which come before it in the table. The NIC is not reached by them.
  struct Decoy {
    wire::Gid gid;
    uint32_t index;
    uint32_t ifindex;
  };
  std::vector<Decoy> decoys;
  bool port_up = true;
  bool refuses = false;                      // it refuses to connect a QP
  bool is_full = false;                      // no further QP can be made
  bool loops = true;                         // messages to itself arrive; false: the QP breaks
  std::map<ibv_wr_opcode, int> post_errors;  // the errno that a post of such a request returns
  // Behaves like Linux's soft-RoCE: a receive of a shared queue is lost with a message that did not
  // end, and completions stay in the CQs when their QP is reset or destroyed.
  bool is_soft_roce = false;
  bool remembers = true;                            // keeps what was posted in FakeQp::recvs
  std::map<uint32_t, std::unique_ptr<FakeQp>> qps;  // by QP number
  std::deque<FakeCq> cqs;                           // a deque, so that addresses stay
  std::deque<ibv_mr> mrs;
  std::deque<FakeSrq> srqs;

  FakeNic(const char* name, uint32_t ip_be);
  FakeNic(const FakeNic&) = delete;
  FakeNic& operator=(const FakeNic&) = delete;

  ibv_context* context() { return &verbs.context; }
  FakeCq& cq_make(int cqe);
  FakeSrq& srq_make();
  FakeQp& qp_make(ibv_cq* send_cq, ibv_cq* recv_cq, bool all_signaled);

  static FakeNic& of(ibv_context* context) {
    return *reinterpret_cast<FakeNic*>(verbs_get_ctx(context));
  }
};

// The table of fake functions that stands for the stock library.
const StockVerbs* fake_stock();

}  // namespace shift::group

// Posts through both interfaces: ibv_post_send and ibv_wr_*.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "verbs_transport.h"

namespace traffic {
namespace {
constexpr uint32_t kSgesMax = 8;

bool has_imm(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
}  // namespace

// Splits a buffer into traffic_.sges pieces; a short buffer stays one piece.
uint32_t VerbsTransport::sges_make(std::byte* local, uint32_t length, uint32_t lkey,
                                   ibv_sge* out) const {
  if (length == 0) return 0;
  uint32_t pieces = length >= traffic_.sges * 16 ? traffic_.sges : 1;
  uint32_t step = length / pieces;
  for (uint32_t i = 0; i < pieces; ++i) {
    out[i].addr = reinterpret_cast<uintptr_t>(local) + i * step;
    out[i].length = i + 1 == pieces ? length - i * step : step;
    out[i].lkey = lkey;
  }
  return pieces;
}

unsigned VerbsTransport::flags_of(const SendRequest& request) const {
  unsigned flags = 0;
  if (request.is_signaled && !traffic_.sig_all) flags |= IBV_SEND_SIGNALED;
  if (request.is_inline) flags |= IBV_SEND_INLINE;
  return flags;
}

int VerbsTransport::post_send(uint32_t qp, std::span<const SendRequest> requests, size_t* posted) {
  return traffic_.api == Api::kClassic ? post_classic(qp, requests, posted)
                                       : post_wr(qp, requests, posted);
}

int VerbsTransport::post_classic(uint32_t qp, std::span<const SendRequest> requests,
                                 size_t* posted) {
  std::vector<ibv_send_wr> wrs(requests.size());
  std::vector<std::array<ibv_sge, kSgesMax>> sges(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const SendRequest& request = requests[i];
    ibv_send_wr& wr = wrs[i];
    wr = {};
    wr.wr_id = request.wr_id;
    wr.next = i + 1 < requests.size() ? &wrs[i + 1] : nullptr;
    wr.sg_list = sges[i].data();
    wr.num_sge =
        static_cast<int>(sges_make(request.local, request.length, request.lkey, wr.sg_list));
    wr.opcode = request.opcode;
    wr.send_flags = flags_of(request);
    if (has_imm(request.opcode)) wr.imm_data = htonl(request.imm);
    if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
        request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      wr.wr.atomic.remote_addr = request.remote;
      wr.wr.atomic.rkey = request.rkey;
      wr.wr.atomic.compare_add = request.add;
      wr.wr.atomic.swap = request.swap;
    } else {
      wr.wr.rdma.remote_addr = request.remote;
      wr.wr.rdma.rkey = request.rkey;
    }
  }
  ibv_send_wr* bad = nullptr;
  int error = ibv_post_send(qps_[qp], wrs.data(), &bad);
  *posted = error == 0 ? requests.size() : static_cast<size_t>(bad - wrs.data());
  // After the call the list and its SGEs belong to the caller again; nothing may read them later.
  std::memset(static_cast<void*>(sges.data()), 0x5a, sges.size() * sizeof sges[0]);
  return error;
}

void VerbsTransport::wr_build(ibv_qp_ex* qp, const SendRequest& request) {
  qp->wr_id = request.wr_id;
  qp->wr_flags = flags_of(request);
  switch (request.opcode) {
    case IBV_WR_RDMA_WRITE:
      ibv_wr_rdma_write(qp, request.rkey, request.remote);
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(qp, request.rkey, request.remote, htonl(request.imm));
      break;
    case IBV_WR_SEND:
      ibv_wr_send(qp);
      break;
    case IBV_WR_SEND_WITH_IMM:
      ibv_wr_send_imm(qp, htonl(request.imm));
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      ibv_wr_atomic_fetch_add(qp, request.rkey, request.remote, request.add);
      break;
    default:
      ibv_wr_rdma_read(qp, request.rkey, request.remote);
      break;
  }
  ibv_sge sges[kSgesMax];
  uint32_t count = sges_make(request.local, request.length, request.lkey, sges);
  if (request.is_inline && count <= 1) {
    ibv_wr_set_inline_data(qp, request.local, request.length);
  } else if (request.is_inline) {
    ibv_data_buf buffers[kSgesMax];
    for (uint32_t i = 0; i < count; ++i)
      buffers[i] = {reinterpret_cast<void*>(sges[i].addr), sges[i].length};
    ibv_wr_set_inline_data_list(qp, count, buffers);
  } else if (count == 1) {
    ibv_wr_set_sge(qp, request.lkey, sges[0].addr, sges[0].length);
  } else {
    ibv_wr_set_sge_list(qp, count, sges);
  }
}

int VerbsTransport::post_wr(uint32_t qp, std::span<const SendRequest> requests, size_t* posted) {
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(qps_[qp]);
  if (ex == nullptr) return EOPNOTSUPP;
  ibv_wr_start(ex);
  for (const SendRequest& request : requests) wr_build(ex, request);
  int error = ibv_wr_complete(ex);
  *posted = error == 0 ? requests.size() : 0;
  return error;
}

int VerbsTransport::post_receive(uint32_t qp, std::span<const ReceiveRequest> requests) {
  std::vector<ibv_recv_wr> wrs(requests.size());
  std::vector<std::array<ibv_sge, kSgesMax>> sges(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    wrs[i] = {};
    wrs[i].wr_id = requests[i].wr_id;
    wrs[i].next = i + 1 < requests.size() ? &wrs[i + 1] : nullptr;
    wrs[i].sg_list = sges[i].data();
    wrs[i].num_sge = static_cast<int>(
        sges_make(requests[i].local, requests[i].length, requests[i].lkey, wrs[i].sg_list));
  }
  ibv_recv_wr* bad = nullptr;
  return srq_ != nullptr ? ibv_post_srq_recv(srq_, wrs.data(), &bad)
                         : ibv_post_recv(qps_[qp], wrs.data(), &bad);
}

}  // namespace traffic

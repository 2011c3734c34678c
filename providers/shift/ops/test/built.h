// Random requests for the builder interface, and a builder of a NIC that takes them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "group/test/fake.h"
#include "util/test/random.h"

namespace shift::ops {

// The real QP's builder: it counts calls, and accepts or refuses a batch.
struct FakeBuilder {
  ibv_qp_ex ex{};  // first
  int started = 0, completed = 0, aborted = 0, requests = 0, error = 0;

  FakeBuilder() {
    ex.wr_start = [](ibv_qp_ex* q) { of(q).started++; };
    ex.wr_complete = [](ibv_qp_ex* q) { return of(q).completed++, of(q).error; };
    ex.wr_abort = [](ibv_qp_ex* q) { of(q).aborted++; };
    ex.wr_rdma_write = [](ibv_qp_ex* q, uint32_t, uint64_t) { of(q).requests++; };
    ex.wr_rdma_write_imm = [](ibv_qp_ex* q, uint32_t, uint64_t, __be32) { of(q).requests++; };
    ex.wr_rdma_read = [](ibv_qp_ex* q, uint32_t, uint64_t) { of(q).requests++; };
    ex.wr_send = [](ibv_qp_ex* q) { of(q).requests++; };
    ex.wr_send_imm = [](ibv_qp_ex* q, __be32) { of(q).requests++; };
    ex.wr_atomic_cmp_swp = [](ibv_qp_ex* q, uint32_t, uint64_t, uint64_t, uint64_t) {
      of(q).requests++;
    };
    ex.wr_atomic_fetch_add = [](ibv_qp_ex* q, uint32_t, uint64_t, uint64_t) { of(q).requests++; };
    ex.wr_bind_mw = [](ibv_qp_ex* q, ibv_mw*, uint32_t, const ibv_mw_bind_info*) {
      of(q).requests++;
    };
    ex.wr_set_sge = [](ibv_qp_ex*, uint32_t, uint64_t, uint32_t) {};
    ex.wr_set_sge_list = [](ibv_qp_ex*, size_t, const ibv_sge*) {};
    ex.wr_set_inline_data = [](ibv_qp_ex*, void*, size_t) {};
    ex.wr_set_inline_data_list = [](ibv_qp_ex*, size_t, const ibv_data_buf*) {};
  }
  static FakeBuilder& of(ibv_qp_ex* q) { return *reinterpret_cast<FakeBuilder*>(q); }
};

struct Built {
  ibv_send_wr wr{};
  std::vector<ibv_sge> sges;
  std::string inline_data;
};

inline Built random_request(Random& random, uint64_t id) {
  constexpr ibv_wr_opcode kOpcodes[] = {
      IBV_WR_RDMA_WRITE,    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,           IBV_WR_SEND,
      IBV_WR_SEND_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP,  IBV_WR_ATOMIC_FETCH_AND_ADD};
  Built r;
  r.wr.wr_id = id;
  r.wr.opcode = kOpcodes[random.below(std::size(kOpcodes))];
  r.wr.send_flags = random.below(2) * IBV_SEND_SIGNALED | random.below(2) * IBV_SEND_FENCE |
                    random.below(2) * IBV_SEND_SOLICITED;
  if (group::is_atomic(r.wr.opcode)) {
    const bool swap = r.wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    r.wr.wr.atomic = {random.number(), random.number(), swap ? random.number() : 0, group::kRkey};
    r.sges.push_back({random.number(), 8, group::kLkey});
    return r;
  }
  if (r.wr.opcode != IBV_WR_SEND && r.wr.opcode != IBV_WR_SEND_WITH_IMM) {
    r.wr.wr.rdma = {random.number(), group::kRkey};
  }
  if (r.wr.opcode == IBV_WR_SEND_WITH_IMM || r.wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    r.wr.imm_data = static_cast<uint32_t>(random.number());
  }
  if (r.wr.opcode != IBV_WR_RDMA_READ && random.chance(30)) {
    r.inline_data.assign(random.below(65), static_cast<char>('a' + id % 26));
  } else {
    for (uint32_t n = random.below(3); n > 0; n--) {
      r.sges.push_back({random.number(), random.below(1000), group::kLkey});
    }
  }
  return r;
}

inline void build(ibv_qp_ex* qp, Built& r, Random& random) {
  qp->wr_id = r.wr.wr_id;
  // IBV_SEND_INLINE has no meaning here: the data calls say what is inline.
  qp->wr_flags = r.wr.send_flags | (random.chance(10) ? unsigned{IBV_SEND_INLINE} : 0u);
  const auto& rdma = r.wr.wr.rdma;
  const auto& atomic = r.wr.wr.atomic;
  switch (r.wr.opcode) {
    case IBV_WR_RDMA_WRITE:
      ibv_wr_rdma_write(qp, rdma.rkey, rdma.remote_addr);
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(qp, rdma.rkey, rdma.remote_addr, r.wr.imm_data);
      break;
    case IBV_WR_RDMA_READ:
      ibv_wr_rdma_read(qp, rdma.rkey, rdma.remote_addr);
      break;
    case IBV_WR_SEND:
      ibv_wr_send(qp);
      break;
    case IBV_WR_SEND_WITH_IMM:
      ibv_wr_send_imm(qp, r.wr.imm_data);
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      ibv_wr_atomic_cmp_swp(qp, atomic.rkey, atomic.remote_addr, atomic.compare_add, atomic.swap);
      break;
    default:
      ibv_wr_atomic_fetch_add(qp, atomic.rkey, atomic.remote_addr, atomic.compare_add);
      break;
  }
  if (!r.inline_data.empty()) {
    const size_t half = r.inline_data.size() / 2;
    if (random.chance(50)) {
      ibv_wr_set_inline_data(qp, r.inline_data.data(), r.inline_data.size());
    } else {
      const ibv_data_buf parts[2] = {{r.inline_data.data(), half},
                                     {r.inline_data.data() + half, r.inline_data.size() - half}};
      ibv_wr_set_inline_data_list(qp, 2, parts);
    }
  } else if (r.sges.size() == 1 && random.chance(50)) {
    ibv_wr_set_sge(qp, r.sges[0].lkey, r.sges[0].addr, r.sges[0].length);
  } else if (!r.sges.empty()) {
    ibv_wr_set_sge_list(qp, r.sges.size(), r.sges.data());
  }
}

}  // namespace shift::ops

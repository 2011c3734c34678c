// Random requests, the two ways to post them, and a comparison with what was read back.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ring_owner.h"
#include "util/test/random.h"

namespace shift::mlx5 {

inline constexpr ibv_wr_opcode kOpcodes[] = {
    IBV_WR_RDMA_WRITE,         IBV_WR_RDMA_WRITE_WITH_IMM,  IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,      IBV_WR_SEND_WITH_INV,        IBV_WR_RDMA_READ,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV};

inline bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
inline bool has_remote_address(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
         opcode == IBV_WR_RDMA_READ;
}
inline bool has_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

struct Request {
  ibv_send_wr wr{};
  std::vector<ibv_sge> sges;
  std::vector<std::vector<uint8_t>> pieces;  // what the SGEs of an inline request point to

  bool is_inline() const { return wr.send_flags & IBV_SEND_INLINE; }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> all;
    for (const auto& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
    return all;
  }
};

inline std::vector<ibv_sge> random_sges(Random& random, uint32_t most) {
  std::vector<ibv_sge> sges(random.below(most + 1));
  for (ibv_sge& sge : sges) {
    // The queue's format has 31 bits for a length.
    const auto length = static_cast<uint32_t>(random.number() >> 33);
    sge = {random.number(), random.chance(25) ? 0 : length, static_cast<uint32_t>(random.number())};
  }
  return sges;
}

inline void fill_inline(Request& r, Random& random, uint32_t most) {
  r.wr.send_flags |= IBV_SEND_INLINE;
  uint32_t left = random.chance(30) ? most : random.below(most + 1);
  for (uint32_t n = random.below(4); n > 0; n--) {
    const uint32_t length = n == 1 || random.chance(20) ? left : random.below(left + 1);
    std::vector<uint8_t>& piece = r.pieces.emplace_back(length);
    // No byte is zero: see ring_imitation_test.cc.
    for (uint8_t& byte : piece) byte = static_cast<uint8_t>(1 + random.below(255));
    left -= length;
  }
  for (auto& piece : r.pieces) {
    r.sges.push_back(
        {reinterpret_cast<uintptr_t>(piece.data()), static_cast<uint32_t>(piece.size()), 0});
  }
}

inline std::unique_ptr<Request> random_request(Random& random, const RingOwner& owner,
                                               uint64_t wr_id) {
  const ibv_qp_cap& cap = owner.cap();
  auto made = std::make_unique<Request>();
  ibv_send_wr& wr = made->wr;
  wr.wr_id = wr_id;
  wr.opcode = kOpcodes[random.below(std::size(kOpcodes))];
  wr.send_flags = random.below(2) * IBV_SEND_SIGNALED | random.below(2) * IBV_SEND_FENCE |
                  random.below(2) * IBV_SEND_SOLICITED;
  wr.imm_data = static_cast<uint32_t>(random.number());
  if (is_atomic(wr.opcode)) {
    wr.wr.atomic = {random.number(), random.number(), random.number(),
                    static_cast<uint32_t>(random.number())};
    made->sges = {{random.number(), 8, static_cast<uint32_t>(random.number())}};
  } else {
    wr.wr.rdma = {random.number(), static_cast<uint32_t>(random.number())};
    const bool may_be_inline = wr.opcode != IBV_WR_RDMA_READ && wr.opcode != IBV_WR_LOCAL_INV;
    if (may_be_inline && cap.max_inline_data > 0 && random.chance(40)) {
      fill_inline(*made, random, cap.max_inline_data);
    } else if (wr.opcode != IBV_WR_LOCAL_INV) {
      made->sges = random_sges(random, cap.max_send_sge);
    }
  }
  if (made->pieces.size() > cap.max_send_sge) return random_request(random, owner, wr_id);
  wr.sg_list = made->sges.data();
  wr.num_sge = static_cast<int>(made->sges.size());
  return made;
}

inline void build_data(ibv_qp_ex* qp, Request& r, Random& random) {
  if (r.wr.opcode == IBV_WR_LOCAL_INV) return;
  if (!r.is_inline()) {
    return r.sges.size() == 1 && random.chance(50)
               ? ibv_wr_set_sge(qp, r.sges[0].lkey, r.sges[0].addr, r.sges[0].length)
               : ibv_wr_set_sge_list(qp, r.sges.size(), r.sges.data());
  }
  if (r.pieces.size() == 1 && random.chance(50)) {
    return ibv_wr_set_inline_data(qp, r.pieces[0].data(), r.pieces[0].size());
  }
  std::vector<ibv_data_buf> buffers;
  for (auto& piece : r.pieces) buffers.push_back({piece.data(), piece.size()});
  ibv_wr_set_inline_data_list(qp, buffers.size(), buffers.data());
}

inline void build(ibv_qp_ex* qp, Request& r, Random& random) {
  ibv_send_wr& wr = r.wr;
  qp->wr_id = wr.wr_id;
  qp->wr_flags = wr.send_flags & ~unsigned{IBV_SEND_INLINE};
  const auto& rdma = wr.wr.rdma;
  const auto& atomic = wr.wr.atomic;
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
      ibv_wr_rdma_write(qp, rdma.rkey, rdma.remote_addr);
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(qp, rdma.rkey, rdma.remote_addr, wr.imm_data);
      break;
    case IBV_WR_RDMA_READ:
      ibv_wr_rdma_read(qp, rdma.rkey, rdma.remote_addr);
      break;
    case IBV_WR_SEND_WITH_IMM:
      ibv_wr_send_imm(qp, wr.imm_data);
      break;
    case IBV_WR_SEND_WITH_INV:
      ibv_wr_send_inv(qp, wr.invalidate_rkey);
      break;
    case IBV_WR_LOCAL_INV:
      ibv_wr_local_inv(qp, wr.invalidate_rkey);
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      ibv_wr_atomic_cmp_swp(qp, atomic.rkey, atomic.remote_addr, atomic.compare_add, atomic.swap);
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      ibv_wr_atomic_fetch_add(qp, atomic.rkey, atomic.remote_addr, atomic.compare_add);
      break;
    default:
      ibv_wr_send(qp);
      break;
  }
  build_data(qp, r, random);
}

inline void expect_same_sges(const std::vector<ibv_sge>& asked, const ibv_sge* read, int count) {
  std::vector<ibv_sge> full;
  std::copy_if(asked.begin(), asked.end(), std::back_inserter(full),
               [](const ibv_sge& sge) { return sge.length != 0; });
  ASSERT_EQ(static_cast<size_t>(count), full.size());
  for (size_t i = 0; i < full.size(); i++) {
    ASSERT_EQ(read[i].addr, full[i].addr);
    ASSERT_EQ(read[i].length, full[i].length);
    ASSERT_EQ(read[i].lkey, full[i].lkey);
  }
}

inline void expect_same(const Request& asked, const ReadSend& read) {
  const ibv_send_wr &a = asked.wr, &b = read.wr;
  ASSERT_NE(read.blocks, 0u);
  ASSERT_EQ(a.opcode, b.opcode);
  if (a.opcode == IBV_WR_LOCAL_INV) return;  // nobody asks what is in it
  if (has_immediate(a.opcode)) {
    ASSERT_EQ(a.imm_data, b.imm_data);
  } else if (a.opcode == IBV_WR_SEND_WITH_INV) {
    ASSERT_EQ(a.invalidate_rkey, b.invalidate_rkey);
  }
  if (has_remote_address(a.opcode)) {
    ASSERT_EQ(a.wr.rdma.remote_addr, b.wr.rdma.remote_addr);
    ASSERT_EQ(a.wr.rdma.rkey, b.wr.rdma.rkey);
  } else if (is_atomic(a.opcode)) {
    ASSERT_EQ(a.wr.atomic.remote_addr, b.wr.atomic.remote_addr);
    ASSERT_EQ(a.wr.atomic.rkey, b.wr.atomic.rkey);
    ASSERT_EQ(a.wr.atomic.compare_add, b.wr.atomic.compare_add);
    ASSERT_EQ(a.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? a.wr.atomic.swap : 0, b.wr.atomic.swap);
  }
  const std::vector<uint8_t> bytes = asked.bytes();
  if (bytes.empty()) {
    ASSERT_FALSE(b.send_flags & IBV_SEND_INLINE);
    return expect_same_sges(asked.is_inline() ? std::vector<ibv_sge>{} : asked.sges, b.sg_list,
                            b.num_sge);
  }
  ASSERT_TRUE(b.send_flags & IBV_SEND_INLINE);
  ASSERT_EQ(b.num_sge, 1);
  ASSERT_EQ(b.sg_list[0].addr, reinterpret_cast<uintptr_t>(read.data.data()));
  ASSERT_EQ(std::vector<uint8_t>(read.data.data(), read.data.data() + b.sg_list[0].length), bytes);
}

}  // namespace shift::mlx5

// The queue pairs of all processes, for `cxemu list`. Each process writes its own entries at every
// change of state, and the packet numbers now and then.
#pragma once

#include <atomic>
#include <cstdint>

namespace cxemu {

struct FabricFile;

// 64 processes on each of two hosts, with 32 of their own, have some 10,000, with the layer's.
inline constexpr uint32_t kMaxListedQps = 32768;

struct FabricQp {
  std::atomic<int32_t> pid;   // owner; 0: free
  std::atomic<uint32_t> nic;  // index in FabricFile::nic
  std::atomic<uint32_t> number;
  std::atomic<uint32_t> type, state;  // ibv_qp_type, ibv_qp_state
  std::atomic<uint32_t> peer_number, peer_ipv4_be;
  std::atomic<uint32_t> sq_psn, rq_psn;
  std::atomic<uint32_t> syndrome;  // why it went to ERR by itself; 0: it did not
};

// Takes an entry for this process; nullptr when the table is full: the QP is then not listed.
FabricQp* qp_entry_take(FabricFile&, uint32_t number);
void qp_entry_release(FabricQp*);

}  // namespace cxemu

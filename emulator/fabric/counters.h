// What a port counts, under the names that mlx5 shows in sysfs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace cxemu {

// The entries of hw_counters that an emulated NIC changes. See counter_names.cc for the others.
enum class HwCounter : uint8_t {
  kDuplicateRequest,    // responder: a request that was executed before
  kImpliedNakSeqErr,    // requester: a response that had to come did not
  kLocalAckTimeoutErr,  // requester: no answer in time
  kOutOfBuffer,         // responder: no receive posted
  kOutOfSequence,       // responder: a packet beyond the expected one
  kPacketSeqErr,        // requester: NAK for a missing packet
  kReqCqeError,         // requester: completions in error, flushed ones included
  kReqCqeFlushError,
  kReqRemoteAccessErrors,
  kReqRemoteInvalidRequest,
  kRespCqeError,
  kRespCqeFlushError,
  kRespLocalLengthError,
  kRespRemoteAccessErrors,
  kRnrNakRetryErr,  // requester: RNR NAKs
  kRxWriteRequests,
  kRxReadRequests,
  kRxAtomicRequests,
  kCount,
};

// Written once per pass of an engine, or at errors.
struct alignas(64) PortCounters {
  std::atomic<uint64_t> tx_packets, rx_packets, tx_bytes, rx_bytes;
  std::atomic<uint64_t> dropped_packets;  // by faults
  std::atomic<uint64_t> retransmits, qp_errors;
  std::atomic<uint64_t> icrc_errors;      // packets that arrived damaged
  std::atomic<uint64_t> qkey_violations;  // datagrams whose Q_Key differs from the queue pair's
  std::atomic<uint64_t> link_downed;
  std::atomic<uint64_t> held_commands;  // commands that a fault made wait
  std::array<std::atomic<uint64_t>, static_cast<size_t>(HwCounter::kCount)> hw;

  void add(HwCounter counter, uint64_t n = 1) {
    hw[static_cast<size_t>(counter)].fetch_add(n, std::memory_order_relaxed);
  }
  uint64_t get(HwCounter counter) const {
    return hw[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
  }
};

}  // namespace cxemu

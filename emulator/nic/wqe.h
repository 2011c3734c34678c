// Decoder of work queue entries. They are in memory that the application writes, so no length or
// count in them is trusted: whatever the ring contains, decoding stays inside the ring and the
// result stays inside its array.
#pragma once

#include <cstdint>

#include "nic/roce.h"

namespace cxemu {

// A part of a message in local memory, or of inline data in the send ring.
struct DataPart {
  uint64_t address;  // inline: offset in the ring; the data may wrap
  uint32_t length;
  uint32_t lkey;
  bool is_inline;
};

inline constexpr uint32_t kMaxParts = 64;          // a WQE has at most 63 segments
inline constexpr uint64_t kMaxMessage = 1u << 31;  // IBA 9.4.2

struct SendRing {
  const uint8_t* buffer;
  uint32_t block_count;  // power of two
  Service service = Service::kRc;

  uint32_t bytes() const { return block_count * 64; }
};

// What a WQE does to a memory window: binds it, or ends its binding.
struct WindowUpdate {
  bool bind;
  bool type2;
  uint8_t variant;  // of the key afterwards
  uint32_t region_key;
  uint64_t address, length;  // in the region
  uint64_t iova;             // of the window
  uint32_t access;           // ibv_access_flags
};

// Where a datagram goes: the address vector of a UD WQE.
struct DatagramAddress {
  uint32_t qkey, qpn;
  uint8_t sgid_index;
  uint8_t service_level;
  uint8_t gid[16];
};

struct SendWqe {
  uint8_t opcode;
  bool signaled, solicited, fence_reads;
  uint16_t index;   // of the first block, as the ring counts
  uint16_t blocks;  // length in blocks
  uint32_t imm_be;  // or the key that a SEND invalidates, or that the WQE changes
  uint64_t remote_address;
  uint32_t rkey;
  uint64_t swap_or_add, compare;
  WindowUpdate window;
  DatagramAddress datagram;  // UD
  uint32_t srqn;             // XRC
  uint32_t part_count;
  uint64_t length;  // of all parts
  DataPart part[kMaxParts];

  bool is_read_or_atomic() const;
  bool is_atomic() const;
  bool is_local() const;  // no packet is sent for it
};

enum class WqeError {
  kNone,
  kBadLength,    // the length field is 0 or beyond what was posted: the next WQE cannot be found
  kBadIndex,     // not the WQE that was announced; the next one cannot be found, either
  kBadOpcode,    // not supported by this device, or not by the service
  kBadSegments,  // segments do not fit the WQE, or the message is too long
};

// Decodes the WQE at block `index`, of which `posted` blocks (at most the ring's) were announced.
// On error `wqe` still has index, opcode, signaled, and blocks (0 when unknown).
WqeError send_wqe_decode(const SendRing&, uint16_t index, uint32_t posted, SendWqe* wqe);

// Copies `size` bytes from `offset` of the ring, across its end.
void ring_copy(const SendRing&, uint64_t offset, void* to, uint32_t size);

struct RecvRing {
  const uint8_t* buffer;
  uint32_t wqe_count;  // power of two
  uint32_t wqe_shift;  // log2 of one WQE's size
};

struct RecvWqe {
  uint16_t index;
  uint32_t part_count;
  uint64_t length;
  DataPart part[kMaxParts];
};

// Decodes the data segments of a receive, at most `room` of them.
void recv_parts_decode(const uint8_t* at, uint32_t room, RecvWqe* wqe);
void recv_wqe_decode(const RecvRing&, uint16_t index, RecvWqe* wqe);

}  // namespace cxemu

// Encoder and decoder of the InfiniBand transport headers (IBA volume 1, chapter 9 and annex A14),
// as RoCEv2 carries them after UDP. It knows neither carriers nor queue pairs. The carrier computes
// the ICRC, because that covers the IP and UDP headers, too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cxemu {

inline constexpr size_t kBthSize = 12;  // of the base transport header, in bytes

// A BTH opcode consists of a service, in the upper three bits, and an operation.
enum class Service : uint8_t {
  kRc = 0,   // reliable connection
  kUc = 1,   // unreliable connection
  kUd = 3,   // unreliable datagram
  kXrc = 5,  // extended reliable connection
};

enum class Operation : uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImm = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImm = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImm = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImm = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
};

inline constexpr size_t kMaxHeader = 12 + 28 + 4;
inline constexpr uint32_t kMaxMtu = 4096;
inline constexpr size_t kMaxPacket = kMaxHeader + kMaxMtu + 3;

// AETH syndromes (IBA 9.7.5.2.1 and following).
inline constexpr uint8_t kAethAck = 0x1f;  // without credit limit
inline constexpr uint8_t kAethRnr = 0x20;  // | timer code
inline constexpr uint8_t kAethNak = 0x60;  // | NakCode
inline constexpr uint8_t kAethTypeMask = 0x60;
inline constexpr uint8_t kAethValueMask = 0x1f;

enum NakCode : uint8_t {
  kNakSequence = 0,
  kNakInvalidRequest = 1,
  kNakRemoteAccess = 2,
  kNakRemoteOperation = 3,
};

struct Packet {
  // BTH
  Operation opcode;
  Service service = Service::kRc;
  bool solicited = false;
  bool ack_request = false;
  uint32_t dest_qpn = 0;
  uint32_t psn = 0;
  // RETH, and address and key of AtomicETH
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint32_t dma_length = 0;
  // AtomicETH
  uint64_t swap_or_add = 0, compare = 0;
  // DETH (UD)
  uint32_t qkey = 0;
  uint32_t src_qpn = 0;
  // The reserved byte of the DETH. In the emulator every packet travels over IPv4; a sender that
  // used another entry of its GID table than RoCE v2 over IPv4 says so here. See ud.cc.
  uint8_t network = 0;
  // XRCETH: the shared receive queue that a request of the XRC service is for
  uint32_t srqn = 0;
  // AETH
  uint8_t syndrome = 0;
  uint32_t msn = 0;
  // AtomicAckETH
  uint64_t original = 0;
  // ImmDt, or the key of IETH, in the byte order of the packet
  uint32_t imm_be = 0;
  // Decoded packets only; points into the decoded buffer.
  const uint8_t* payload = nullptr;
  size_t payload_size = 0;
};

// Whether some service above has this operation.
bool opcode_is_known(uint8_t opcode);
bool opcode_is_response(Operation);
bool opcode_starts_message(Operation);  // First, Only, READ and atomic requests
bool opcode_ends_message(Operation);
bool opcode_is_send(Operation);
bool opcode_is_write(Operation);
bool opcode_has_imm(Operation);
bool opcode_has_invalidate(Operation);
bool opcode_has_reth(Operation);
bool opcode_has_aeth(Operation);
bool opcode_has_payload(Operation);

// Size of all headers of a packet.
size_t header_size(Operation, Service = Service::kRc);
// Number of bytes that make the payload a multiple of four.
inline size_t pad_size(size_t payload_size) {
  return (0 - payload_size) & 3;
}

// Writes the headers to `out` (kMaxHeader bytes are enough) and returns their size. The caller puts
// `payload_size` bytes and pad_size() zero bytes after them.
size_t headers_encode(const Packet& packet, size_t payload_size, uint8_t* out);
// Returns false for anything that is not a well-formed packet of a service above.
bool packet_decode(const uint8_t* data, size_t size, Packet* packet);

// Packet sequence numbers have 24 bits and wrap.
inline constexpr uint32_t kPsnMask = 0xffffff;
inline uint32_t psn_add(uint32_t psn, uint32_t n) {
  return (psn + n) & kPsnMask;
}
// a - b as a signed distance, from -kPsnHalf to kPsnHalf - 1.
inline int32_t psn_diff(uint32_t a, uint32_t b) {
  return static_cast<int32_t>((a - b) << 8) >> 8;
}
// How far `a` is ahead of `b`; `b` must not be ahead of `a`. 2 GiB in packets of 256 bytes are
// exactly kPsnHalf, which psn_diff() would take for a distance backwards.
inline constexpr uint32_t kPsnHalf = 1u << 23;
inline uint32_t psn_ahead(uint32_t a, uint32_t b) {
  return (a - b) & kPsnMask;
}
// Whether `a` is ahead of `b`, by kPsnHalf at most.
inline bool psn_passed(uint32_t a, uint32_t b) {
  return psn_ahead(a, b) != 0 && psn_ahead(a, b) <= kPsnHalf;
}

// RNR timer codes (IBA table 45) in nanoseconds.
uint64_t rnr_timer_ns(uint8_t code);

}  // namespace cxemu

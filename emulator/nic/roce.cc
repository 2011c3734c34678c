// Transport headers.
#include "nic/roce.h"

#include <endian.h>

#include <cstring>

#include "nic/planted.h"

namespace cxemu {

namespace {

constexpr size_t kRethSize = 16;
constexpr size_t kAethSize = 4;
constexpr size_t kImmSize = 4;  // also of the extended header that names a key to invalidate
constexpr size_t kAtomicEthSize = 28;
constexpr size_t kAtomicAckSize = 8;
constexpr uint16_t kDefaultPkey = 0xffff;
constexpr size_t kDethSize = 8;
constexpr size_t kXrcEthSize = 4;
constexpr uint8_t kLastOpcode = 0x17;
constexpr int kServiceShift = 5;
constexpr uint8_t kOperationMask = 0x1f;

enum Parts : uint16_t {
  kReth = 1 << 0,
  kAeth = 1 << 1,
  kImm = 1 << 2,
  kAtomicEth = 1 << 3,
  kAtomicAck = 1 << 4,
  kPayload = 1 << 5,
  kStarts = 1 << 6,
  kEnds = 1 << 7,
  kSend = 1 << 8,
  kWrite = 1 << 9,
  kResponse = 1 << 10,
  kInvalidate = 1 << 11,
};

constexpr uint16_t kParts[kLastOpcode + 1] = {
    kSend | kPayload | kStarts,                 // SEND first
    kSend | kPayload,                           // SEND middle
    kSend | kPayload | kEnds,                   // SEND last
    kSend | kPayload | kEnds | kImm,            // SEND last with immediate
    kSend | kPayload | kStarts | kEnds,         // SEND only
    kSend | kPayload | kStarts | kEnds | kImm,  // SEND only with immediate
    kWrite | kPayload | kStarts | kReth,        // WRITE first
    kWrite | kPayload,                          // WRITE middle
    kWrite | kPayload | kEnds,                  // WRITE last
    kWrite | kPayload | kEnds | kImm,           // WRITE last with immediate
    kWrite | kPayload | kStarts | kEnds | kReth,
    kWrite | kPayload | kStarts | kEnds | kReth | kImm,
    kStarts | kEnds | kReth,                         // READ request
    kResponse | kPayload | kStarts | kAeth,          // READ response first
    kResponse | kPayload,                            // READ response middle
    kResponse | kPayload | kEnds | kAeth,            // READ response last
    kResponse | kPayload | kStarts | kEnds | kAeth,  // READ response only
    kResponse | kStarts | kEnds | kAeth,             // acknowledge
    kResponse | kStarts | kEnds | kAeth | kAtomicAck,
    kStarts | kEnds | kAtomicEth,  // compare and swap
    kStarts | kEnds | kAtomicEth,  // fetch and add
    0,                             // reserved
    kSend | kPayload | kEnds | kInvalidate,
    kSend | kPayload | kStarts | kEnds | kInvalidate,
};

bool has(Operation operation, uint16_t part) {
  return (kParts[static_cast<uint8_t>(operation)] & part) != 0;
}

// One bit for each operation of a service.
constexpr uint32_t operations_up_to(Operation last) {
  return (2u << static_cast<uint8_t>(last)) - 1;
}
constexpr uint32_t operation_bit(Operation operation) {
  return 1u << static_cast<uint8_t>(operation);
}
constexpr uint32_t kReliable = operations_up_to(Operation::kFetchAdd) |
                               operation_bit(Operation::kSendLastInvalidate) |
                               operation_bit(Operation::kSendOnlyInvalidate);
constexpr uint32_t kOperations[8] = {
    kReliable, operations_up_to(Operation::kWriteOnlyImm),
    0,         operation_bit(Operation::kSendOnly) | operation_bit(Operation::kSendOnlyImm),
    0,         kReliable,
    0,         0,
};

// Size of the header that the service puts before those of the operation.
size_t service_header_size(Operation operation, Service service) {
  if (service == Service::kUd) return kDethSize;
  return service == Service::kXrc && !has(operation, kResponse) ? kXrcEthSize : 0;
}

class Writer {
 public:
  explicit Writer(uint8_t* out) : at_(out) {}
  void u8(uint8_t value) { *at_++ = value; }
  void u16(uint16_t value) { put(htobe16(value)); }
  void u32(uint32_t value) { put(htobe32(value)); }
  void u64(uint64_t value) { put(htobe64(value)); }
  void raw32(uint32_t value) { put(value); }
  uint8_t* at() const { return at_; }

 private:
  template <typename T>
  void put(T value) {
    memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  uint8_t* at_;
};

class Reader {
 public:
  explicit Reader(const uint8_t* in) : at_(in) {}
  uint8_t u8() { return *at_++; }
  void skip(size_t n) { at_ += n; }
  uint32_t u32() { return be32toh(get<uint32_t>()); }
  uint64_t u64() { return be64toh(get<uint64_t>()); }
  uint32_t raw32() { return get<uint32_t>(); }

 private:
  template <typename T>
  T get() {
    T value;
    memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  const uint8_t* at_;
};

}  // namespace

bool opcode_is_known(uint8_t opcode) {
  return (kOperations[opcode >> kServiceShift] >> (opcode & kOperationMask) & 1) != 0;
}
bool opcode_is_response(Operation operation) {
  return has(operation, kResponse);
}
bool opcode_starts_message(Operation operation) {
  return has(operation, kStarts);
}
bool opcode_ends_message(Operation operation) {
  return has(operation, kEnds);
}
bool opcode_is_send(Operation operation) {
  return has(operation, kSend);
}
bool opcode_is_write(Operation operation) {
  return has(operation, kWrite);
}
bool opcode_has_imm(Operation operation) {
  return has(operation, kImm);
}
bool opcode_has_invalidate(Operation operation) {
  return has(operation, kInvalidate);
}
bool opcode_has_reth(Operation operation) {
  return has(operation, kReth);
}
bool opcode_has_aeth(Operation operation) {
  return has(operation, kAeth);
}
bool opcode_has_payload(Operation operation) {
  return has(operation, kPayload);
}

size_t header_size(Operation operation, Service service) {
  return kBthSize + service_header_size(operation, service) +
         (has(operation, kReth) ? kRethSize : 0) + (has(operation, kAeth) ? kAethSize : 0) +
         (has(operation, kImm | kInvalidate) ? kImmSize : 0) +
         (has(operation, kAtomicEth) ? kAtomicEthSize : 0) +
         (has(operation, kAtomicAck) ? kAtomicAckSize : 0);
}

size_t headers_encode(const Packet& packet, size_t payload_size, uint8_t* out) {
  Writer writer(out);
  writer.u8(static_cast<uint8_t>(static_cast<uint8_t>(packet.service) << kServiceShift |
                                 static_cast<uint8_t>(packet.opcode)));
  // Solicited event, no migration request (bit 6 means "migrated"), pad count, header version 0.
  writer.u8(
      static_cast<uint8_t>((packet.solicited ? 0x80 : 0) | 0x40 | pad_size(payload_size) << 4));
  writer.u16(kDefaultPkey);
  writer.u32(packet.dest_qpn & 0xffffff);
  writer.u32((packet.ack_request ? 1u << 31 : 0) | (packet.psn & kPsnMask));
  if (packet.service == Service::kUd) {
    writer.u32(packet.qkey);
    writer.u32(uint32_t{packet.network} << 24 | (packet.src_qpn & 0xffffff));
  } else if (service_header_size(packet.opcode, packet.service) != 0) {
    writer.u32(packet.srqn & 0xffffff);
  }
  if (has(packet.opcode, kReth)) {
    writer.u64(packet.remote_address);
    writer.u32(packet.rkey);
    writer.u32(packet.dma_length);
  }
  if (has(packet.opcode, kAtomicEth)) {
    writer.u64(packet.remote_address);
    writer.u32(packet.rkey);
    writer.u64(packet.swap_or_add);
    writer.u64(packet.compare);
  }
  if (has(packet.opcode, kAeth)) {
    writer.u32(uint32_t{packet.syndrome} << 24 | (packet.msn & 0xffffff));
  }
  if (has(packet.opcode, kAtomicAck)) writer.u64(packet.original);
  if (has(packet.opcode, kImm | kInvalidate)) writer.raw32(packet.imm_be);
  return static_cast<size_t>(writer.at() - out);
}

bool packet_decode(const uint8_t* data, size_t size, Packet* packet) {
  if (size < kBthSize || !opcode_is_known(data[0])) return false;
  const auto opcode = static_cast<Operation>(data[0] & kOperationMask);
  const auto service = static_cast<Service>(data[0] >> kServiceShift);
  const size_t headers = header_size(opcode, service);
  if (size < headers || size % 4 != 0 || size - headers > kMaxMtu) return false;
  if ((data[1] & 0x0f) != 0 && !CXEMU_PLANT(header_version_unchecked)) return false;
  const size_t pad = data[1] >> 4 & 3;
  const size_t behind = size - headers;
  if (pad > behind || (!has(opcode, kPayload) && behind != 0)) return false;

  *packet = Packet{.opcode = opcode, .service = service};
  packet->solicited = (data[1] & 0x80) != 0;
  Reader reader(data + 4);
  packet->dest_qpn = reader.u32() & 0xffffff;
  const uint32_t last = reader.u32();
  packet->ack_request = last >> 31 != 0;
  packet->psn = last & kPsnMask;
  if (service == Service::kUd) {
    packet->qkey = reader.u32();
    const uint32_t source = reader.u32();
    packet->network = static_cast<uint8_t>(source >> 24);
    packet->src_qpn = source & 0xffffff;
  } else if (service_header_size(opcode, service) != 0) {
    packet->srqn = reader.u32() & 0xffffff;
  }
  if (has(opcode, kReth)) {
    packet->remote_address = reader.u64();
    packet->rkey = reader.u32();
    packet->dma_length = reader.u32();
  }
  if (has(opcode, kAtomicEth)) {
    packet->remote_address = reader.u64();
    packet->rkey = reader.u32();
    packet->swap_or_add = reader.u64();
    packet->compare = reader.u64();
  }
  if (has(opcode, kAeth)) {
    const uint32_t aeth = reader.u32();
    packet->syndrome = static_cast<uint8_t>(aeth >> 24);
    packet->msn = aeth & 0xffffff;
  }
  if (has(opcode, kAtomicAck)) packet->original = reader.u64();
  if (has(opcode, kImm | kInvalidate)) packet->imm_be = reader.raw32();
  packet->payload = data + headers;
  packet->payload_size = CXEMU_PLANT(pad_is_payload) ? behind : behind - pad;
  return true;
}

uint64_t rnr_timer_ns(uint8_t code) {
  // In units of 10 us; code 0 is the longest, the other codes grow.
  static constexpr uint32_t kTenMicroseconds[32] = {
      65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
      48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
      2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return uint64_t{kTenMicroseconds[code & 31]} * 10'000;
}

}  // namespace cxemu

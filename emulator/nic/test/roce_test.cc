// Transport headers: round trips, exact bytes, refusal of all malformed packets, and numbers that
// wrap.
#include "nic/roce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace cxemu {
namespace {

std::vector<uint8_t> packet_make(const Packet& packet, const std::vector<uint8_t>& payload) {
  std::vector<uint8_t> bytes(kMaxPacket);
  size_t size = headers_encode(packet, payload.size(), bytes.data());
  EXPECT_EQ(size, header_size(packet.opcode, packet.service));
  std::copy(payload.begin(), payload.end(), bytes.begin() + static_cast<long>(size));
  size += payload.size() + pad_size(payload.size());
  bytes.resize(size);
  return bytes;
}

constexpr Service kServices[] = {Service::kRc, Service::kUc, Service::kUd, Service::kXrc};

// The operations that the standard gives each service, written down independently.
bool service_has(Service service, Operation operation) {
  if (service == Service::kUd) {
    return operation == Operation::kSendOnly || operation == Operation::kSendOnlyImm;
  }
  const auto code = static_cast<uint8_t>(operation);
  if (service == Service::kUc) return code <= 0x0b;
  return code <= 0x17 && code != 0x15;
}

Packet full_packet(Operation opcode, Service service = Service::kRc) {
  Packet packet = {.opcode = opcode, .service = service};
  packet.qkey = 0x11223344;
  packet.src_qpn = 0xfedcba;
  packet.network = 0x5a;
  packet.srqn = 0xa1b2c3;
  packet.solicited = true;
  packet.ack_request = true;
  packet.dest_qpn = 0x123456;
  packet.psn = 0xabcdef;
  packet.remote_address = 0x1122334455667788;
  packet.rkey = 0x99aabbcc;
  packet.dma_length = 0x01020304;
  packet.swap_or_add = 0x1020304050607080;
  packet.compare = 0x0102030405060708;
  packet.syndrome = 0x61;
  packet.msn = 0x00fedc;
  packet.original = 0x8877665544332211;
  packet.imm_be = 0xdeadbeef;
  return packet;
}

void pads_come_back(Service service, uint8_t code) {
  const auto opcode = static_cast<Operation>(code);
  const Packet sent = full_packet(opcode, service);
  for (size_t size : {0, 1, 2, 3, 4, 255, 4095, 4096}) {
    if (!opcode_has_payload(opcode) && size > 0) continue;
    std::vector<uint8_t> payload(size);
    for (size_t i = 0; i < size; i++) payload[i] = static_cast<uint8_t>(i * 7);
    const auto bytes = packet_make(sent, payload);
    ASSERT_EQ(bytes.size() % 4, 0u);
    Packet got = {.opcode = Operation::kSendOnly};
    ASSERT_TRUE(packet_decode(bytes.data(), bytes.size(), &got)) << int{code} << " " << size;
    EXPECT_EQ(got.opcode, opcode);
    EXPECT_EQ(got.service, service);
    if (service == Service::kUd) {
      EXPECT_EQ(got.qkey, sent.qkey);
      EXPECT_EQ(got.src_qpn, sent.src_qpn);
      EXPECT_EQ(got.network, sent.network);
    }
    if (service == Service::kXrc && !opcode_is_response(opcode)) {
      EXPECT_EQ(got.srqn, sent.srqn);
    }
    EXPECT_TRUE(got.solicited);
    EXPECT_TRUE(got.ack_request);
    EXPECT_EQ(got.dest_qpn, sent.dest_qpn);
    EXPECT_EQ(got.psn, sent.psn);
    const bool atomic = code == 0x13 || code == 0x14;
    if (opcode_has_reth(opcode) || atomic) {
      EXPECT_EQ(got.remote_address, sent.remote_address);
      EXPECT_EQ(got.rkey, sent.rkey);
    }
    if (opcode_has_reth(opcode)) {
      EXPECT_EQ(got.dma_length, sent.dma_length);
    }
    if (atomic) {
      EXPECT_EQ(got.swap_or_add, sent.swap_or_add);
      EXPECT_EQ(got.compare, sent.compare);
    }
    if (opcode_has_aeth(opcode)) {
      EXPECT_EQ(got.syndrome, sent.syndrome);
      EXPECT_EQ(got.msn, sent.msn);
    }
    if (opcode == Operation::kAtomicAcknowledge) {
      EXPECT_EQ(got.original, sent.original);
    }
    if (opcode_has_imm(opcode) || opcode_has_invalidate(opcode)) {
      EXPECT_EQ(got.imm_be, sent.imm_be);
    }
    ASSERT_EQ(got.payload_size, size);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), got.payload));
  }
}

TEST(Roce, EveryOpcodeAndPadComesBack) {
  for (const Service service : kServices) {
    for (uint8_t code = 0; code <= 0x17; code++) {
      if (service_has(service, static_cast<Operation>(code))) pads_come_back(service, code);
    }
  }
}

// These bytes are what a capture of such a packet shows.
TEST(Roce, WriteOnlyWithImmediateHasTheBytesOfTheStandard) {
  Packet packet = full_packet(Operation::kWriteOnlyImm);
  packet.imm_be = 0x04030201;  // in memory 01 02 03 04
  const auto bytes = packet_make(packet, {0xee});
  const std::vector<uint8_t> expected = {
      0x0b, 0xf0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef,  // BTH, pad 3
      0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc,  // RETH
      0x01, 0x02, 0x03, 0x04,                                                  //
      0x01, 0x02, 0x03, 0x04,                                                  // ImmDt
      0xee, 0x00, 0x00, 0x00};
  EXPECT_EQ(bytes, expected);
}

TEST(Roce, DatagramAndSharedQueueHeadersHaveTheBytesOfTheStandard) {
  auto bytes = packet_make(full_packet(Operation::kSendOnly, Service::kUd), {1, 2, 3, 4});
  EXPECT_EQ(bytes, (std::vector<uint8_t>{0x64, 0xc0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56,  // BTH
                                         0x80, 0xab, 0xcd, 0xef,                          //
                                         0x11, 0x22, 0x33, 0x44, 0x5a, 0xfe, 0xdc, 0xba,  // DETH
                                         1,    2,    3,    4}));
  bytes = packet_make(full_packet(Operation::kSendOnly, Service::kXrc), {});
  EXPECT_EQ(bytes, (std::vector<uint8_t>{0xa4, 0xc0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56,  // BTH
                                         0x80, 0xab, 0xcd, 0xef,                          //
                                         0x00, 0xa1, 0xb2, 0xc3}));                       // XRCETH
  EXPECT_EQ(packet_make(full_packet(Operation::kSendMiddle, Service::kUc), {})[0], 0x21);
}

TEST(Roce, CutHeadersAreRefused) {
  Packet got = {.opcode = Operation::kSendOnly};
  for (int code = 0; code < 256; code++) {
    if (!opcode_is_known(static_cast<uint8_t>(code))) continue;
    const auto bytes = packet_make(
        full_packet(static_cast<Operation>(code & 0x1f), static_cast<Service>(code >> 5)), {});
    for (size_t size = 0; size < bytes.size(); size++) {
      EXPECT_FALSE(packet_decode(bytes.data(), size, &got)) << code << " " << size;
    }
  }
}

TEST(Roce, EveryOpcodeThatNoServiceHasIsRefused) {
  for (int code = 0; code < 256; code++) {
    const auto service = static_cast<Service>(code >> 5);
    const bool known =
        std::find(std::begin(kServices), std::end(kServices), service) != std::end(kServices) &&
        service_has(service, static_cast<Operation>(code & 0x1f));
    EXPECT_EQ(opcode_is_known(static_cast<uint8_t>(code)), known) << code;
    std::vector<uint8_t> bytes(64);
    bytes[0] = static_cast<uint8_t>(code);
    Packet got = {.opcode = Operation::kSendOnly};
    if (!known) {
      EXPECT_FALSE(packet_decode(bytes.data(), bytes.size(), &got)) << code;
    }
  }
}

TEST(Roce, MalformedIsRefused) {
  Packet got = {.opcode = Operation::kSendOnly};
  auto bytes = packet_make(full_packet(Operation::kSendOnly), {1, 2, 3, 4});
  ASSERT_TRUE(packet_decode(bytes.data(), bytes.size(), &got));
  auto changed = bytes;
  changed[0] = 0x15;
  EXPECT_FALSE(packet_decode(changed.data(), changed.size(), &got)) << "unknown opcode";
  changed = bytes;
  changed[1] |= 1;
  EXPECT_FALSE(packet_decode(changed.data(), changed.size(), &got)) << "header version";
  changed = packet_make(full_packet(Operation::kSendOnly), {});
  changed[1] |= 0x10;
  EXPECT_FALSE(packet_decode(changed.data(), changed.size(), &got)) << "pad beyond payload";
  changed = packet_make(full_packet(Operation::kAcknowledge), {});
  changed.resize(changed.size() + 4);
  EXPECT_FALSE(packet_decode(changed.data(), changed.size(), &got)) << "ACK with payload";
  changed = bytes;
  changed.resize(kMaxPacket + 4);
  EXPECT_FALSE(packet_decode(changed.data(), changed.size(), &got)) << "beyond the largest MTU";
}

TEST(Roce, RandomBytesNeverReachBeyondTheBuffer) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100'000; i++) {
    std::vector<uint8_t> bytes(random() % 80);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (!bytes.empty()) bytes[0] = static_cast<uint8_t>((bytes[0] & 0x1f) | (i % 8) << 5);
    Packet got = {.opcode = Operation::kSendOnly};
    if (!packet_decode(bytes.data(), bytes.size(), &got)) continue;
    EXPECT_GE(got.payload, bytes.data());
    EXPECT_LE(got.payload + got.payload_size, bytes.data() + bytes.size());
  }
}

TEST(Roce, PsnsWrap) {
  EXPECT_EQ(psn_add(0xffffff, 1), 0u);
  EXPECT_EQ(psn_add(5, kPsnMask), 4u);
  EXPECT_EQ(psn_diff(0, 0xffffff), 1);
  EXPECT_EQ(psn_diff(0xffffff, 0), -1);
  EXPECT_EQ(psn_diff(0x7fffff, 0), 0x7fffff);
  EXPECT_EQ(psn_diff(0x800000, 0), -0x800000);
}

TEST(Roce, RnrTimersAreThoseOfTheTable) {
  EXPECT_EQ(rnr_timer_ns(0), 655'360'000u);
  EXPECT_EQ(rnr_timer_ns(1), 10'000u);
  EXPECT_EQ(rnr_timer_ns(12), 640'000u);
  EXPECT_EQ(rnr_timer_ns(18), 5'120'000u);
  EXPECT_EQ(rnr_timer_ns(31), 491'520'000u);
  for (uint8_t code = 2; code < 32; code++) EXPECT_GT(rnr_timer_ns(code), rnr_timer_ns(code - 1));
}

}  // namespace
}  // namespace cxemu

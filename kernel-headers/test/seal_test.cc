// Opens a sealed frame with nothing but a cryptographic library and what the plain header says.
#include "net/seal.h"

#include <gtest/gtest.h>
#include <rdma/shift-wire.h>
#include <sodium.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace shift::header {
namespace {

constexpr uint64_t kSealedSequence = 0x1122334455667788, kSealedKey = 0x99aabbccddeeff01;

struct Sealed {
  std::vector<uint8_t> key = std::vector<uint8_t>(32);
  wire::Instance from, to;
  std::vector<uint8_t> clear, frame;

  Sealed() {
    std::iota(key.begin(), key.end(), uint8_t{7});
    from.raw.fill(0x51);
    to.raw.fill(0x62);
    EXPECT_GE(sodium_init(), 0);
    EXPECT_TRUE(
        wire::encode(wire::KeysForgotten{{{}, 1}, {{}, 2}, 0xfeedbeef}, clear, kSealedSequence));
    frame = clear;
    EXPECT_TRUE(net::seal(key, kSealedKey, {from, to}, frame));
  }
};

template <typename T>
T at(const std::vector<uint8_t>& frame, size_t offset) {
  T value;
  std::memcpy(&value, frame.data() + offset, sizeof value);
  return value;
}

TEST(HeaderSeal, LeavesTheHeaderAndTheIdOfTheKeyInClear) {
  const Sealed s;
  ASSERT_EQ(s.frame.size(), s.clear.size() + SHIFT_WIRE_SEAL_SIZE);
  const auto header = at<shift_wire_header>(s.frame, 0);
  EXPECT_EQ(header.flags, SHIFT_WIRE_SEALED);
  EXPECT_EQ(header.type, SHIFT_WIRE_KEYS_FORGOTTEN);
  EXPECT_EQ(header.length, s.frame.size());
  const uint64_t sequence = header.sequence;
  EXPECT_EQ(sequence, kSealedSequence);
  const uint64_t id = at<shift_wire_seal>(s.frame, sizeof header).key_id;
  EXPECT_EQ(id, kSealedKey);
}

// The cipher, its nonce, what is authenticated, and the key of one way.
TEST(HeaderSeal, OpensAsTheHeaderSays) {
  const Sealed s;
  std::vector<uint8_t> said;
  for (const char c : "SHIFT channel") said.push_back(static_cast<uint8_t>(c));  // and a zero byte
  for (const auto* instance : {&s.from, &s.to})
    said.insert(said.end(), instance->raw.begin(), instance->raw.end());
  uint8_t key[32];
  ASSERT_EQ(
      crypto_generichash(key, sizeof key, said.data(), said.size(), s.key.data(), s.key.size()), 0);
  const size_t head = sizeof(shift_wire_header) + sizeof(shift_wire_seal);
  const size_t size = s.frame.size() - head - SHIFT_WIRE_TAG_SIZE;
  uint8_t nonce[12] = {};
  std::memcpy(nonce, s.frame.data() + offsetof(shift_wire_header, sequence), 8);
  std::vector<uint8_t> body(size);
  ASSERT_EQ(crypto_aead_chacha20poly1305_ietf_decrypt_detached(
                body.data(), nullptr, s.frame.data() + head, size, s.frame.data() + head + size,
                s.frame.data(), head, nonce, key),
            0);
  EXPECT_TRUE(std::equal(body.begin(), body.end(), s.clear.begin() + sizeof(shift_wire_header),
                         s.clear.end()));
}

}  // namespace
}  // namespace shift::header

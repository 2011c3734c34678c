// ChaCha20-Poly1305 (IETF): the nonce is the frame's sequence number, and header and key id are
// authenticated with the body.
#include "net/seal.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <exception>

namespace shift::net {

namespace {

constexpr size_t kIdSize = 8;
constexpr size_t kHead = wire::kHeaderSize + kIdSize;
constexpr size_t kTagSize = crypto_aead_chacha20poly1305_IETF_ABYTES;
static_assert(kIdSize + kTagSize == wire::kSealSize);

// The key of one way. It is derived anew for each frame, so that it lies in no memory for longer.
class WayKey {
 public:
  WayKey(SecretKey job_key, const Way& way) {
    constexpr char kPurpose[] = "SHIFT channel";
    crypto_generichash_state state;
    crypto_generichash_init(&state, job_key.data(), job_key.size(), sizeof bytes);
    const auto* purpose = reinterpret_cast<const uint8_t*>(kPurpose);
    crypto_generichash_update(&state, purpose, sizeof kPurpose);
    crypto_generichash_update(&state, way.from.raw.data(), way.from.raw.size());
    crypto_generichash_update(&state, way.to.raw.data(), way.to.raw.size());
    crypto_generichash_final(&state, bytes, sizeof bytes);
    sodium_memzero(&state, sizeof state);
  }
  ~WayKey() { sodium_memzero(bytes, sizeof bytes); }
  WayKey(const WayKey&) = delete;
  WayKey& operator=(const WayKey&) = delete;

  uint8_t bytes[crypto_aead_chacha20poly1305_IETF_KEYBYTES];
};

struct FrameNonce {
  explicit FrameNonce(std::span<const uint8_t> frame) {
    const uint64_t sequence = wire::frame_sequence(frame);
    for (size_t i = 0; i < sizeof sequence; i++) bytes[i] = static_cast<uint8_t>(sequence >> 8 * i);
  }
  uint8_t bytes[crypto_aead_chacha20poly1305_IETF_NPUBBYTES] = {};
};

}  // namespace

uint64_t sealed_with(std::span<const uint8_t> frame) {
  uint64_t id = 0;
  for (size_t i = kIdSize; i-- > 0;) id = id << 8 | frame[wire::kHeaderSize + i];
  return id;
}

bool seal(SecretKey job_key, uint64_t id, const Way& way, std::vector<uint8_t>& frame) {
  const size_t body = frame.size() - wire::kHeaderSize;
  try {
    frame.resize(kHead + body + kTagSize);
  } catch (const std::exception&) {
    return false;
  }
  std::memmove(&frame[kHead], &frame[wire::kHeaderSize], body);
  for (size_t i = 0; i < kIdSize; i++)
    frame[wire::kHeaderSize + i] = static_cast<uint8_t>(id >> 8 * i);
  wire::frame_mark(frame, frame.size(), true);
  const WayKey key(job_key, way);
  crypto_aead_chacha20poly1305_ietf_encrypt_detached(&frame[kHead], &frame[kHead + body], nullptr,
                                                     &frame[kHead], body, frame.data(), kHead,
                                                     nullptr, FrameNonce(frame).bytes, key.bytes);
  return true;
}

bool unseal(SecretKey job_key, const Way& way, std::span<const uint8_t> frame,
            std::vector<uint8_t>& out) {
  const size_t body = frame.size() - wire::kHeaderSize - wire::kSealSize;
  try {
    out.resize(wire::kHeaderSize + body);
  } catch (const std::exception&) {
    return false;
  }
  const WayKey key(job_key, way);
  if (crypto_aead_chacha20poly1305_ietf_decrypt_detached(
          out.data() + wire::kHeaderSize, nullptr, &frame[kHead], body, &frame[kHead + body],
          frame.data(), kHead, FrameNonce(frame).bytes, key.bytes) != 0)
    return false;
  std::ranges::copy(frame.first(wire::kHeaderSize), out.begin());
  wire::frame_mark(out, out.size(), false);
  return true;
}

}  // namespace shift::net

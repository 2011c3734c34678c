// Tags are BLAKE2b with a key, 16 bytes of it.
#include "net/proof.h"

#include <sodium.h>

#include <vector>

namespace shift::net {

namespace {

// One tag in the making. Each part is hashed with its size, so that no two lists of parts are
// alike.
class Hash {
 public:
  Hash(SecretKey key, std::string_view purpose) {
    crypto_generichash_init(&state_, key.data(), key.size(), sizeof(wire::Tag::raw));
    add({reinterpret_cast<const uint8_t*>(purpose.data()), purpose.size()});
  }
  ~Hash() { sodium_memzero(&state_, sizeof state_); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;

  Hash& add(std::span<const uint8_t> bytes) {
    uint8_t size[8];
    for (size_t i = 0; i < sizeof size; i++) size[i] = static_cast<uint8_t>(bytes.size() >> 8 * i);
    crypto_generichash_update(&state_, size, sizeof size);
    crypto_generichash_update(&state_, bytes.data(), bytes.size());
    return *this;
  }
  Hash& add(const wire::Message& message) {
    std::vector<uint8_t> bytes;
    whole_ = whole_ && wire::encode(message, bytes);
    return add(bytes);
  }
  Hash& add(const Ends& ends) {
    return add({reinterpret_cast<const uint8_t*>(&ends), sizeof ends});
  }
  wire::Tag end() {
    wire::Tag tag;
    if (whole_) crypto_generichash_final(&state_, tag.raw.data(), tag.raw.size());
    return tag;
  }

 private:
  crypto_generichash_state state_;
  bool whole_ = true;
};

}  // namespace

wire::Tag hello_tag(const Signer& signer, wire::Hello hello) {
  hello.tag = {};
  return Hash(signer.key, "hello").add(signer.ends).add(wire::Message(hello)).end();
}

wire::Tag reply_tag(const Signer& signer, const wire::Hello& hello, wire::HelloReply reply) {
  reply.tag = {};
  return Hash(signer.key, "reply")
      .add(signer.ends)
      .add(wire::Message(hello))
      .add(wire::Message(reply))
      .end();
}

wire::Tag confirm_tag(const Signer& signer, const wire::Hello& hello, const wire::HelloReply& reply,
                      wire::Confirm confirm) {
  confirm.tag = {};
  return Hash(signer.key, "confirm")
      .add(signer.ends)
      .add(wire::Message(hello))
      .add(wire::Message(reply))
      .add(wire::Message(confirm))
      .end();
}

wire::Tag query_tag(SecretKey key, wire::GidQuery query) {
  query.tag = {};
  return Hash(key, "GID query").add(wire::Message(query)).end();
}

wire::Tag answer_tag(SecretKey key, wire::GidAnswer answer) {
  answer.tag = {};
  return Hash(key, "GID answer").add(wire::Message(answer)).end();
}

wire::Tag bytes_tag(SecretKey key, std::string_view purpose, std::span<const uint8_t> bytes) {
  return Hash(key, purpose).add(bytes).end();
}

bool tag_fits(const wire::Tag& computed, const wire::Tag& came) {
  return computed != wire::Tag{} &&
         sodium_memcmp(computed.raw.data(), came.raw.data(), computed.raw.size()) == 0;
}

}  // namespace shift::net

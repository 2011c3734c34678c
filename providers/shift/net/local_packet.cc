// A local packet has a kind, an answer, the number of a question, and a Hello in its wire form.
#include "net/local_packet.h"

#include <exception>

namespace shift::net {
namespace {

constexpr size_t kHead = 6;  // kind, yes, id

// What both sides said, in a row.
wire::Tag local_tag(SecretKey key, std::string_view purpose, std::string_view local_name,
                    const wire::Nonce& challenge, const wire::Hello& hello) {
  std::vector<uint8_t> bytes;
  for (const auto* part : {&challenge.raw, &hello.nonce.raw, &hello.instance.raw})
    bytes.insert(bytes.end(), part->begin(), part->end());
  bytes.insert(bytes.end(), local_name.begin(), local_name.end());
  return bytes_tag(key, purpose, bytes);
}

}  // namespace

wire::Tag register_tag(SecretKey key, std::string_view local_name, const wire::Nonce& challenge,
                       const wire::Hello& hello) {
  return local_tag(key, "local register", local_name, challenge, hello);
}

wire::Tag welcome_tag(SecretKey key, std::string_view local_name, const wire::Nonce& challenge,
                      const wire::Hello& registered) {
  return local_tag(key, "local welcome", local_name, challenge, registered);
}

bool local_encode(const LocalPacket& packet, std::vector<uint8_t>& out) noexcept {
  try {
    out.push_back(static_cast<uint8_t>(packet.kind));
    out.push_back(packet.yes ? 1 : 0);
    for (int i = 0; i < 4; i++) out.push_back(static_cast<uint8_t>(packet.id >> (8 * i)));
    return wire::encode(packet.hello, out);
  } catch (const std::exception&) {
    return false;
  }
}

bool local_decode(std::span<const uint8_t> bytes, LocalPacket& packet) noexcept {
  if (bytes.size() < kHead || bytes[0] < 1 || bytes[0] > 6 || bytes[1] > 1) return false;
  packet.kind = static_cast<LocalKind>(bytes[0]);
  packet.yes = bytes[1] == 1;
  packet.id = 0;
  for (int i = 3; i >= 0; i--) packet.id = packet.id << 8 | bytes[2 + static_cast<size_t>(i)];
  wire::Message message;
  if (!wire::decode(bytes.subspan(kHead), message)) return false;
  const auto* hello = std::get_if<wire::Hello>(&message);
  if (hello == nullptr) return false;
  packet.hello = *hello;
  return true;
}

}  // namespace shift::net

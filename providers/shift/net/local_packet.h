// Packets between the processes that share one rendezvous port of a host.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "net/proof.h"
#include "wire/messages.h"

namespace shift::net {

enum class LocalKind : uint8_t {
  kRegister = 1,   // sharer -> owner: my instance, a nonce and a tag are in the hello
  kAsk = 2,        // owner -> sharer: is hello.want yours?
  kAnswer = 3,     // sharer -> owner: yes or no
  kPass = 4,       // owner -> sharer: the connection whose descriptor comes along is yours
  kChallenge = 5,  // owner -> sharer, first of all: register with a tag over hello.nonce
  kWelcome = 6,    // owner -> sharer: you are registered, and hello.tag is over your nonce
};

struct LocalPacket {
  LocalKind kind = LocalKind::kRegister;
  uint32_t id = 0;  // the number of the question
  bool yes = false;
  wire::Hello hello;
};

inline constexpr size_t kLocalPacketMax = 512;

// The tags of Register and Welcome. With a job key they prove that both processes know it; without
// one they are not looked at. They cover the name of the local socket: else a process that took the
// name of one address could have a sharer of that one registered with the owner of another.
wire::Tag register_tag(SecretKey key, std::string_view local_name, const wire::Nonce& challenge,
                       const wire::Hello& hello);
wire::Tag welcome_tag(SecretKey key, std::string_view local_name, const wire::Nonce& challenge,
                      const wire::Hello& registered);

[[nodiscard]] bool local_encode(const LocalPacket& packet, std::vector<uint8_t>& out) noexcept;
[[nodiscard]] bool local_decode(std::span<const uint8_t> bytes, LocalPacket& packet) noexcept;

}  // namespace shift::net

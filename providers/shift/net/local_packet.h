// Packets between the processes that share one rendezvous port of a host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wire/messages.h"

namespace shift::net {

enum class LocalKind : uint8_t {
  kRegister = 1,  // sharer -> owner: my instance is in hello.instance
  kAsk = 2,       // owner -> sharer: is hello.want yours?
  kAnswer = 3,    // sharer -> owner: yes or no
  kPass = 4,      // owner -> sharer: the connection whose descriptor comes along is yours
};

struct LocalPacket {
  LocalKind kind = LocalKind::kRegister;
  uint32_t id = 0;  // the number of the question
  bool yes = false;
  wire::Hello hello;
};

inline constexpr size_t kLocalPacketMax = 512;

[[nodiscard]] bool local_encode(const LocalPacket& packet, std::vector<uint8_t>& out) noexcept;
[[nodiscard]] bool local_decode(std::span<const uint8_t> bytes, LocalPacket& packet) noexcept;

}  // namespace shift::net

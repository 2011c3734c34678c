// The names that cross the wire, as value types: of addresses, queue pairs and processes.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>

namespace shift::wire {

// A GID that can be compared, which union ibv_gid cannot. Its bytes are in network order.
struct Gid {
  std::array<uint8_t, 16> raw{};

  auto operator<=>(const Gid&) const = default;

  static Gid from_verbs(const union ibv_gid& gid) noexcept {
    Gid g;
    std::memcpy(g.raw.data(), gid.raw, g.raw.size());
    return g;
  }
  union ibv_gid to_verbs() const noexcept {
    union ibv_gid g;
    std::memcpy(g.raw, raw.data(), raw.size());
    return g;
  }
  // The GID ::ffff:a.b.c.d of an IPv4 address, which is in network byte order.
  static Gid from_ipv4(uint32_t ip_be) noexcept {
    Gid g;
    g.raw[10] = g.raw[11] = 0xff;
    std::memcpy(&g.raw[12], &ip_be, sizeof ip_be);
    return g;
  }
  // Nothing, unless the GID has that form; the address is in network byte order.
  std::optional<uint32_t> ipv4() const noexcept {
    for (int i = 0; i < 10; i++)
      if (raw[i] != 0) return std::nullopt;
    if (raw[10] != 0xff || raw[11] != 0xff) return std::nullopt;
    uint32_t ip_be;
    std::memcpy(&ip_be, &raw[12], sizeof ip_be);
    return ip_be;
  }
};

// The name of a default QP; control messages are about no other kind of QP.
struct QpName {
  Gid gid;
  uint32_t qpn = 0;

  auto operator<=>(const QpName&) const = default;
};

// Names one life of one process: 16 random bytes, new after fork. All zeros name no process.
struct Instance {
  std::array<uint8_t, 16> raw{};

  auto operator<=>(const Instance&) const = default;
  bool is_zero() const noexcept { return *this == Instance{}; }
};

// 16 random bytes that make one handshake unlike all others.
struct Nonce {
  std::array<uint8_t, 16> raw{};

  bool operator==(const Nonce&) const = default;
};

// The public half of a process's key pair (X25519). All zeros are no key.
struct PublicKey {
  std::array<uint8_t, 32> raw{};

  bool operator==(const PublicKey&) const = default;
};

// A keyed hash of what was said, which proves that the sender knows the key. All zeros are no tag.
struct Tag {
  std::array<uint8_t, 16> raw{};

  bool operator==(const Tag&) const = default;
};

}  // namespace shift::wire

// The name by which peers know this process: a key pair as old as the process. The instance that
// they speak of is the hash of the public half, so only this process can prove that it is
// the instance (C11). It never changes, so any thread may use it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "wire/names.h"

namespace shift::net {

// What two processes share and no third one can compute. It makes the tags of their handshakes.
using PairKey = std::array<uint8_t, 32>;

class Identity {
 public:
  using Secret = std::array<uint8_t, 32>;

  // Without randomness the instance is zero, which nobody talks to, and there is no pair key.
  Identity();
  explicit Identity(const Secret& secret);
  ~Identity();
  Identity(const Identity&) = delete;
  Identity& operator=(const Identity&) = delete;

  const wire::Instance& instance() const { return instance_; }
  const wire::PublicKey& public_key() const { return public_key_; }

  // The key shared with the owner of the public key, who has that instance. Nothing, if the
  // instance is not the public key's.
  std::optional<PairKey> pair_key(const wire::PublicKey& peer,
                                  const wire::Instance& instance) const;

 private:
  void publish();

  Secret secret_{};
  wire::PublicKey public_key_;
  wire::Instance instance_;
};

}  // namespace shift::net

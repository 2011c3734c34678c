// X25519 between two processes, and BLAKE2b for the names and the keys that follow from it.
#include "net/identity.h"

#include <sodium.h>

#include <algorithm>

#include "net/random.h"
#include "util/log.h"

namespace shift::net {

namespace {

wire::Instance instance_of(const wire::PublicKey& key) {
  wire::Instance instance;
  crypto_generichash(instance.raw.data(), instance.raw.size(), key.raw.data(), key.raw.size(),
                     nullptr, 0);
  return instance;
}

}  // namespace

Identity::Identity() {
  // Where the kernel gives no random numbers, sodium_init() may end the process.
  if (random_fill(secret_) && sodium_init() >= 0) {
    publish();
    return;
  }
  SHIFT_ERROR("no failover: the kernel gives no random numbers, so no process can prove who it is");
}

Identity::Identity(const Secret& secret) : secret_(secret) {
  publish();
}

Identity::~Identity() {
  sodium_memzero(secret_.data(), secret_.size());
}

void Identity::publish() {
  crypto_scalarmult_base(public_key_.raw.data(), secret_.data());
  instance_ = instance_of(public_key_);
}

std::optional<PairKey> Identity::pair_key(const wire::PublicKey& peer,
                                          const wire::Instance& instance) const {
  if (instance_.is_zero() || instance_of(peer) != instance) return {};
  PairKey shared, key;
  // It refuses the few public keys with which the result would be the same for everybody.
  if (crypto_scalarmult(shared.data(), secret_.data(), peer.raw.data()) != 0) return {};
  const auto [first, second] = std::minmax(public_key_.raw, peer.raw);
  crypto_generichash_state state;
  crypto_generichash_init(&state, shared.data(), shared.size(), key.size());
  crypto_generichash_update(&state, first.data(), first.size());
  crypto_generichash_update(&state, second.data(), second.size());
  crypto_generichash_final(&state, key.data(), key.size());
  sodium_memzero(shared.data(), shared.size());
  sodium_memzero(&state, sizeof state);
  return key;
}

}  // namespace shift::net

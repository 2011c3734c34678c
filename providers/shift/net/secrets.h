// What this process knows and strangers do not: the job keys, if it has any, and the tokens that
// its peers have to show. Only the control loop uses it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/proof.h"
#include "util/job_keys.h"
#include "wire/messages.h"

namespace shift::net {

// Fills `out` from the kernel's source of randomness. False where there is none, as in old
// sandboxes.
[[nodiscard]] bool random_fill(std::span<uint8_t> out);

class Secrets {
 public:
  // Without `keys`, processes prove themselves by the addresses that they come from.
  explicit Secrets(std::unique_ptr<JobKeys> keys = nullptr);
  ~Secrets();
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;

  bool has_keys() const { return keys_ != nullptr; }
  // The ids of all keys, the one to speak with first; a single 0 without keys.
  const std::vector<uint64_t>& key_ids() const { return ids_; }
  // Empty for the id of no key of this process.
  SecretKey job_key(uint64_t id) const;
  // Whether the Hello was made with a key of this process, or without one if it has none.
  bool hello_fits(const wire::Hello& hello) const;

  // The token that the peer has to show; all zeros, which no proof fits, without randomness.
  wire::Token token_for(const wire::Instance& peer) const;

  // The rendezvous port of the processes that have the key: tenants of one host with different keys
  // do not meet. `port` is the one without a key.
  static uint16_t port_of(uint16_t port, uint64_t key_id);
  // The name of the local socket by which these processes meet on one host. Strangers cannot guess
  // the name that belongs to a key.
  std::string local_name(uint32_t ip_be, uint16_t port, uint64_t key_id) const;

 private:
  const std::unique_ptr<JobKeys> keys_;
  std::vector<uint64_t> ids_;
  std::array<uint8_t, 32> join_secret_{};
  bool has_join_secret_;
};

}  // namespace shift::net

// What this process knows and strangers do not: its identity, and the job keys, if it has any. Only
// the control loop uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/identity.h"
#include "net/proof.h"
#include "net/random.h"
#include "util/job_keys.h"
#include "wire/messages.h"

namespace shift::net {

class Secrets {
 public:
  // Without `keys`, a process at the address of a peer's QP is taken for the peer, and proves only
  // that it is one process with one identity.
  explicit Secrets(std::unique_ptr<JobKeys> keys = nullptr);
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;

  const Identity& identity() const { return identity_; }
  bool has_keys() const { return keys_ != nullptr; }
  // The ids of all keys, the one to speak with first; a single 0 without keys.
  const std::vector<uint64_t>& key_ids() const { return ids_; }
  // Empty for the id of no key of this process.
  SecretKey job_key(uint64_t id) const;
  // Whether the Hello was made with a key of this process, or without one if it has none.
  bool hello_fits(const wire::Hello& hello) const;

  // The rendezvous port of the processes that have the key: tenants of one host with different keys
  // do not meet. `port` is the one without a key.
  static uint16_t port_of(uint16_t port, uint64_t key_id);
  // The name of the local socket by which these processes meet on one host. Strangers cannot guess
  // the name that belongs to a key.
  std::string local_name(uint32_t ip_be, uint16_t port, uint64_t key_id) const;

 private:
  const Identity identity_;
  const std::unique_ptr<JobKeys> keys_;
  std::vector<uint64_t> ids_;
};

}  // namespace shift::net

// The checks that need two ends: a process of this host answers, or another host where
// `shift-verify --server` runs (docs/verify.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "runner.h"

namespace shift::verify {

inline constexpr int kProtocol = 1;
// Below the layer's own, which go on upwards for job keys.
inline constexpr uint16_t kServerPort = 9472;

class Session {
 public:
  virtual ~Session() = default;
  // The peer's NICs, the default first.
  virtual const std::vector<std::string>& peer_nics() const = 0;
  // Runs a check on the peer's side alone.
  virtual Outcome run_there(const Check& check, const std::string& nic,
                            const Job::Progress& progress) = 0;
  // Runs a check of both ends, with this host's as the one that asks.
  virtual Outcome run_both(const Check& check, const Subject& subject,
                           const Job::Progress& progress) = 0;
};

// Runs a check of one host, in a process of its own.
Outcome run_here(const Check& check, const Subject& subject, const Job::Progress& progress);

std::unique_ptr<Session> session_alone(const Subject& host);
// Throws Trouble when there is no server, or none of this version.
std::unique_ptr<Session> session_with(const std::string& server, uint16_t port);

// Serves until it is ended. Throws Trouble when the port cannot be had.
[[noreturn]] void server_run(const Subject& host, uint16_t port);

}  // namespace shift::verify

// Configuration: SHIFT_* variables and /etc/shift.conf, the same keys in both, read once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "util/log.h"

namespace shift {

inline constexpr char kConfigFile[] = "/etc/shift.conf";

// What a fault may cost (docs/trilemma.md).
enum class Mode : uint8_t {
  kRelaxed,  // a WRITE that no notification covers may run twice
  kExact,    // nothing runs twice; what cannot be proven gets the original error
};

// SHIFT_DIRECT_VERBS: what a program may do with a provider's direct verbs on virtual devices.
enum class DirectVerbs : uint8_t {
  kRefuse,       // they are said not to be there; questions are answered all the same
  kAnswer,       // they are said to be there; what would go past the layer is refused
  kUnprotected,  // everything, and what is made by them is not protected
};

struct Config {
  bool disable = false;            // SHIFT_DISABLE: plain stock verbs
  LogLevel log = LogLevel::kWarn;  // SHIFT_LOG
  Mode mode = Mode::kRelaxed;      // SHIFT_MODE; one that is not known means kExact
  DirectVerbs direct_verbs = DirectVerbs::kRefuse;  // SHIFT_DIRECT_VERBS
  std::string events;  // SHIFT_EVENTS: file for event records; empty = none
  // SHIFT_PAIRS: which devices stand in for each other, the nearest first; empty = neighbours are
  // paired automatically.
  std::vector<std::vector<std::string>> groups;
  uint16_t port = 9473;  // SHIFT_PORT: rendezvous port of every NIC address
  // SHIFT_RC_TIMEOUT_MAX: cap of the RC ack timeout exponent on default paths
  int rc_timeout_max = 11;
  int fence_ms = 2000;        // SHIFT_FENCE_MS
  int exchange_ms = 3000;     // SHIFT_EXCHANGE_MS: a request waits for a path at least so long
  int failback_ms = 1000;     // SHIFT_FAILBACK_MS: how long a better path must be good; -1: stay
  int drain_ms = 500;         // SHIFT_DRAIN_MS
  int rendezvous_ms = 10000;  // SHIFT_RENDEZVOUS_MS: how long a missing peer is looked for
};

// Looks a variable up; nullptr when it is not set.
using ConfigEnv = std::function<const char*(const char* key)>;

// Reads `file` (nullptr: none; one that does not exist is no mistake), then the environment, which
// wins (an empty function: none). Each bad value adds one line to `warnings` and leaves the value
// as it was; a bad mode is taken for the strictest.
Config config_read(const ConfigEnv& env, const char* file, std::vector<std::string>& warnings);

// The process's configuration, read at the first call (which also sets the log level and opens
// the event file). Programs that gain privileges when started heed the file alone, and open no
// event file.
const Config& config() noexcept;

}  // namespace shift

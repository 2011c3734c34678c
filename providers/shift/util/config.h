// Configuration: SHIFT_* variables and /etc/shift.conf. Both have the same keys, and both are read
// once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "util/log.h"
#include "util/rendezvous_setting.h"

namespace shift {

inline constexpr char kConfigFile[] = "/etc/shift.conf";

// What a fault may cost (docs/trilemma.md).
enum class Mode : uint8_t {
  kRelaxed,  // a WRITE that no notification covers may run twice
  kExact,    // nothing runs twice; without a proof of that, the original error is given
  kAuto,     // nothing runs twice while the receiver's NIC answers; otherwise as kRelaxed
};

// SHIFT_DIRECT_VERBS: what a program may do with a provider's direct verbs on virtual devices.
enum class DirectVerbs : uint8_t {
  kRefuse,       // the layer denies that they exist, but answers questions all the same
  kAnswer,       // the layer says that they exist, but refuses what would go past the layer
  kUnprotected,  // all of them work, and objects that they make are not protected
};

struct Config {
  bool disable = false;  // SHIFT_DISABLE: plain stock verbs
  // SHIFT_PRIVILEGED: the layer works in programs that gain privileges when they are started, too
  bool privileged = false;
  LogLevel log = LogLevel::kWarn;  // SHIFT_LOG
  // SHIFT_LOG_TARGET: stderr, syslog, journal, or the absolute name of a file (util/log_target.h)
  std::string log_target = "stderr";
  Mode mode = Mode::kRelaxed;                       // SHIFT_MODE; an unknown value means kExact
  DirectVerbs direct_verbs = DirectVerbs::kRefuse;  // SHIFT_DIRECT_VERBS
  std::string events;  // SHIFT_EVENTS: file for event records; empty = none
  // SHIFT_STATE_DIR: the base folder of what processes tell of themselves (state/directory.h);
  // empty = nothing is told. The name is absolute.
  std::string state_dir = "/dev/shm";
  // SHIFT_KEY_FILE: the job's keys (util/job_keys.h). An empty name in the environment is a file
  // that cannot be used: a variable that a script failed to fill in must not mean that there are no
  // keys.
  std::optional<std::string> key_file;
  // SHIFT_PAIRS: the devices that stand in for each other, the nearest first; empty = neighbours
  // are paired automatically.
  std::vector<std::vector<std::string>> groups;
  // SHIFT_SPREAD: whether the layer by itself gives a device one backup, or all that fit it
  enum class Spread : uint8_t { kOne, kCapacity } spread = Spread::kOne;
  // SHIFT_DISTANCE: what is left of a NIC's capacity for a default NIC below the same PCI switch,
  // at the same NUMA node, and elsewhere
  using Distance = std::array<double, 3>;
  Distance distance{1, 0.6, 0.3};
  // SHIFT_REGISTER: on which further members regions are registered: on all; on those that paths
  // are made to; or on those that paths are made to, but not before a path is left
  enum class Register : uint8_t { kAll, kSpares, kDemand } register_on = Register::kAll;
  // SHIFT_PEERS: the operator's map of hosts (util/host_map.h); the name is absolute; empty = none
  std::string peers;
  // SHIFT_LOCATE: whether QPs of the layer's own stand ready that find out at which end a fault is
  bool locate = true;
  // SHIFT_BORN: whether a port that is down when its device is opened is shown as if it was up,
  // because another NIC carries what is sent there
  bool born_masked = true;
  // SHIFT_JOURNAL: whether what was posted is read back from the NIC's queue where that can be read
  bool journal_by_notes = true;
  uint16_t port = 9473;          // SHIFT_PORT: rendezvous port of every NIC address
  RendezvousSetting rendezvous;  // SHIFT_RENDEZVOUS: by what peers are found
  // SHIFT_RC_TIMEOUT_MAX: cap of the RC ack timeout exponent on default paths
  int rc_timeout_max = 11;
  int fence_ms = 2000;     // SHIFT_FENCE_MS
  int exchange_ms = 3000;  // SHIFT_EXCHANGE_MS: the least time that a request waits for a path
  int failback_ms = 1000;  // SHIFT_FAILBACK_MS: how long a better path must be good; -1: never
  int drain_ms = 500;      // SHIFT_DRAIN_MS
  // SHIFT_COMMAND_MS: a NIC that has not answered a command for so long is not used for now
  int command_ms = 2000;
  int rendezvous_ms = 10000;  // SHIFT_RENDEZVOUS_MS: how long a missing peer is looked for
};

// Looks a variable up, and returns nullptr when it is not set.
using ConfigEnv = std::function<const char*(const char* key)>;

// Reads `file`, and then the environment, which wins. `file` may be nullptr, and the file may be
// missing; without `env`, the environment is not read. Each bad value adds one line to `warnings`
// and leaves the value as it was, except that a bad mode means the strictest mode.
Config config_read(const ConfigEnv& env, const char* file, std::vector<std::string>& warnings);

// One setting, for people who look at a process.
struct Setting {
  std::string name;
  // What holds, in the form in which it is set. A name of a file stands for itself, never for what
  // the file holds. Control characters are shown as "?", and what is longer than kSettingMax is cut
  // and ends in "...".
  std::string value;
  // "default", "FILE:LINE", "environment", or "fallback": what was set cannot be used here, and
  // this value is in its place.
  std::string source;
};
inline constexpr size_t kSettingMax = 500;  // bytes of a value that is shown

// All settings, as config_read() would find them.
std::vector<Setting> config_settings(const ConfigEnv& env, const char* file);
// A line "NAME=VALUE<TAB>SOURCE" for each setting, as many whole ones as fit.
std::string settings_text(const std::vector<Setting>& settings, size_t size_max);
// These lines for the process's own configuration.
std::string config_settings_text(size_t size_max);

// The process's configuration. The first call reads it, sets the log level and the log's target,
// and opens the event file. In a program that gains privileges when it is started, only the file
// counts, the layer is off unless the file says otherwise, and no file is opened for the log or for
// event records.
const Config& config() noexcept;

}  // namespace shift

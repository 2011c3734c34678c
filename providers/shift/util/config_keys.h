// The table of all settings: how each value is read, and how it is shown.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "util/config.h"

namespace shift {

struct ConfigKey {
  const char* name;
  const char* range;  // what a value must be, as a warning says it
  bool (*parse)(std::string_view value, Config& config);
  // The value that holds, in the form that parse() takes.
  std::string (*show)(const Config& config);
  // A value that is none has an effect, too.
  bool bad_counts = false;
  // A value may hold a password, so a bad one is not repeated in the log.
  bool may_hold_secrets = false;
};

inline constexpr size_t kConfigKeysMax = 32;
std::span<const ConfigKey> config_keys() noexcept;

}  // namespace shift

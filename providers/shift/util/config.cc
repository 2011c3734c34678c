// Parses SHIFT_* variables and /etc/shift.conf through one table of keys.
#include "util/config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <new>
#include <optional>
#include <set>
#include <string_view>

#include "util/trim.h"
#include "util/unique_fd.h"

namespace shift {
namespace {

constexpr size_t kFileMax = 64 * 1024;

// Quotes are allowed, because people write these files like a shell's configuration files.
std::string_view unquote(std::string_view s) {
  const bool is_quoted = s.size() >= 2 && s.front() == '"' && s.back() == '"';
  return is_quoted ? s.substr(1, s.size() - 2) : s;
}

bool parse_bool(std::string_view s, bool& out) {
  for (auto yes : {"1", "yes", "true", "on"})
    if (s == yes) return out = true, true;
  for (auto no : {"", "0", "no", "false", "off"})
    if (s == no) return out = false, true;
  return false;
}

template <typename T>
bool parse_number(std::string_view s, int min, int max, T& out) {
  int value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size() || value < min || value > max)
    return false;
  out = static_cast<T>(value);
  return true;
}

bool parse_level(std::string_view s, LogLevel& out) {
  constexpr std::string_view kNames[] = {"error", "warn", "info", "debug"};
  for (int i = 0; i < 4; i++)
    if (s == kNames[i]) return out = static_cast<LogLevel>(i), true;
  return false;
}

// A user who sets a mode wants more than the default, so an unknown value means the strictest mode.
bool parse_mode(std::string_view s, Mode& out) {
  out = s == "relaxed" ? Mode::kRelaxed : Mode::kExact;
  return s == "relaxed" || s == "exact";
}

bool parse_direct_verbs(std::string_view s, DirectVerbs& out) {
  if (s == "refuse") return out = DirectVerbs::kRefuse, true;
  if (s == "answer") return out = DirectVerbs::kAnswer, true;
  if (s == "unprotected") return out = DirectVerbs::kUnprotected, true;
  return false;
}

// The form is "mlx5_0=mlx5_1,mlx5_2=mlx5_3=mlx5_4"; a device may be in one group only.
bool parse_groups(std::string_view s, decltype(Config::groups)& out) {
  decltype(Config::groups) groups;
  std::set<std::string, std::less<>> seen;
  while (!s.empty()) {
    const auto comma = s.find(',');
    const auto item = trim(s.substr(0, comma));
    s = comma == std::string_view::npos ? std::string_view{} : s.substr(comma + 1);
    if (item.empty()) continue;
    auto& group = groups.emplace_back();
    for (size_t at = 0; at <= item.size();) {
      const auto end = std::min(item.find('=', at), item.size());
      const auto name = trim(item.substr(at, end - at));
      if (name.empty() || !seen.emplace(name).second) return false;
      group.emplace_back(name);
      at = end + 1;
    }
    if (group.size() < 2 || group.size() > 4) return false;
  }
  out = std::move(groups);
  return true;
}

struct Key {
  const char* name;
  const char* range;
  bool (*parse)(std::string_view value, Config& config);
};

constexpr Key kKeys[] = {
    {"SHIFT_DISABLE", "0 or 1",
     [](std::string_view v, Config& c) { return parse_bool(v, c.disable); }},
    {"SHIFT_PRIVILEGED", "0 or 1",
     [](std::string_view v, Config& c) { return parse_bool(v, c.privileged); }},
    {"SHIFT_LOG", "error, warn, info or debug",
     [](std::string_view v, Config& c) { return parse_level(v, c.log); }},
    {"SHIFT_MODE", "relaxed or exact, and exact is used",
     [](std::string_view v, Config& c) { return parse_mode(v, c.mode); }},
    {"SHIFT_DIRECT_VERBS", "refuse, answer or unprotected",
     [](std::string_view v, Config& c) { return parse_direct_verbs(v, c.direct_verbs); }},
    {"SHIFT_EVENTS", "a file name",
     [](std::string_view v, Config& c) { return c.events = v, true; }},
    // No name is refused here, not even an empty one: a process whose keys are out of reach must
    // learn it, and not go on without keys.
    {"SHIFT_KEY_FILE", "a file name",
     [](std::string_view v, Config& c) { return c.key_file = v, true; }},
    {"SHIFT_PAIRS",
     "device=device[=device...],... with each device named once, four in a group at most",
     [](std::string_view v, Config& c) { return parse_groups(v, c.groups); }},
    {"SHIFT_PORT", "1..65535",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 65535, c.port); }},
    {"SHIFT_RC_TIMEOUT_MAX", "8..31",
     [](std::string_view v, Config& c) { return parse_number(v, 8, 31, c.rc_timeout_max); }},
    {"SHIFT_COMMAND_MS", "10..60000",
     [](std::string_view v, Config& c) { return parse_number(v, 10, 60000, c.command_ms); }},
    {"SHIFT_FENCE_MS", "1..60000",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 60000, c.fence_ms); }},
    {"SHIFT_EXCHANGE_MS", "1..600000",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 600000, c.exchange_ms); }},
    {"SHIFT_FAILBACK_MS", "-1..3600000",
     [](std::string_view v, Config& c) { return parse_number(v, -1, 3600000, c.failback_ms); }},
    {"SHIFT_DRAIN_MS", "1..60000",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 60000, c.drain_ms); }},
    {"SHIFT_RENDEZVOUS_MS", "1..600000",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 600000, c.rendezvous_ms); }},
};

const Key* key_find(std::string_view name) {
  for (const Key& key : kKeys)
    if (name == key.name) return &key;
  return nullptr;
}

void set(const Key& key, std::string_view value, Config& config, std::vector<std::string>& warnings,
         const std::string& where) {
  if (key.parse(value, config)) return;
  warnings.push_back(where + key.name + "=\"" + std::string(value.substr(0, 200)) +
                     "\" is ignored: it must be " + key.range);
}

std::optional<std::string> file_read(const char* path) {
  UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd) return std::nullopt;
  std::string text(kFileMax, '\0');
  size_t used = 0;
  while (used < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    used += static_cast<size_t>(n);
  }
  text.resize(used);
  return text;
}

void read_lines(std::string_view text, const char* file, Config& config,
                std::vector<std::string>& warnings) {
  for (int number = 1; !text.empty(); number++) {
    const auto end = text.find('\n');
    const auto line = trim(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (line.empty() || line[0] == '#') continue;
    const std::string where = std::string(file) + ":" + std::to_string(number) + ": ";
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) {
      warnings.push_back(where + "not of the form KEY = VALUE");
      continue;
    }
    const auto name = trim(line.substr(0, equals));
    if (const Key* key = key_find(name))
      set(*key, trim(unquote(trim(line.substr(equals + 1)))), config, warnings, where);
    else
      warnings.push_back(where + "unknown key " + std::string(name.substr(0, 100)));
  }
}

// Fills `config` as far as memory allows.
void process_config(Config& config) noexcept {
  // The user who starts a program that gains privileges chooses its environment, so only the file
  // counts there, which belongs to root. The layer opens ports and makes threads, which such a
  // program may not expect; so the file has to ask for it.
  const bool is_privileged = getauxval(AT_SECURE) != 0;
  std::vector<std::string> warnings;
  try {
    ConfigEnv env;
    if (!is_privileged) env = [](const char* k) { return getenv(k); };
    config = config_read(env, kConfigFile, warnings);
  } catch (const std::bad_alloc&) {
    SHIFT_WARN("out of memory while reading the configuration: defaults are used");
  }
  if (is_privileged && !config.privileged) config.disable = true;
  log_set_level(config.log);
  for (const std::string& warning : warnings) SHIFT_WARN("%s", warning.c_str());
  if (config.events.empty() || is_privileged) return;
  if (const char* problem = events_open(config.events.c_str()))
    SHIFT_WARN("SHIFT_EVENTS: cannot open %s: %s", config.events.c_str(), problem);
}

}  // namespace

Config config_read(const ConfigEnv& env, const char* file, std::vector<std::string>& warnings) {
  Config config;
  if (file != nullptr)
    if (const auto text = file_read(file)) read_lines(*text, file, config, warnings);
  // Whoever leaves the name empty in the file means that there are no keys.
  if (config.key_file && config.key_file->empty()) config.key_file.reset();
  if (!env) return config;
  for (const Key& key : kKeys)
    if (const char* value = env(key.name)) set(key, trim(value), config, warnings, "");
  return config;
}

const Config& config() noexcept {
  // It is never destroyed: the layer's threads may read it after the program's exit handlers ran.
  alignas(Config) static char storage[sizeof(Config)];
  static const Config* const instance = [] {
    auto* made = new (storage) Config;
    process_config(*made);
    return made;
  }();
  return *instance;
}

}  // namespace shift

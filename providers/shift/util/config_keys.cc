// Parses and shows the values of SHIFT_* variables and of /etc/shift.conf.
#include "util/config_keys.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "util/trim.h"

namespace shift {
namespace {

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

// The names of an enumeration's values, in their order.
constexpr std::string_view kLevels[] = {"error", "warn", "info", "debug"};
constexpr std::string_view kModes[] = {"relaxed", "exact", "auto"};
constexpr std::string_view kSpreads[] = {"one", "capacity"};
constexpr std::string_view kRegisters[] = {"all", "spares", "demand"};
constexpr std::string_view kDirectVerbs[] = {"refuse", "answer", "unprotected"};

template <typename T>
bool parse_name(std::string_view s, std::span<const std::string_view> names, T& out) {
  const auto found = std::ranges::find(names, s);
  if (found == names.end()) return false;
  out = static_cast<T>(found - names.begin());
  return true;
}

// A user who sets a mode wants more than the default, so an unknown value means the strictest mode.
bool parse_mode(std::string_view s, Mode& out) {
  out = Mode::kExact;
  return parse_name(s, kModes, out);
}

// A relative name would mean another file in each program.
bool parse_absolute(std::string_view s, std::string& out) {
  if (!s.starts_with('/')) return false;
  out = s;
  return true;
}

bool parse_target(std::string_view s, std::string& out) {
  for (auto name : {"stderr", "syslog", "journal"})
    if (s == name) return out = s, true;
  return parse_absolute(s, out);
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
    constexpr size_t kMost = 8;  // group::kMembersMax
    if (group.size() < 2 || group.size() > kMost) return false;
  }
  out = std::move(groups);
  return true;
}

// The form is "1:0.6:0.3". A factor of zero would mean that there is no such NIC.
bool parse_distance(std::string_view s, Config::Distance& out) {
  constexpr double kLeast = 0.01;
  if (std::ranges::count(s, ':') != 2) return false;
  Config::Distance factors{};
  for (double& factor : factors) {
    const auto item = s.substr(0, s.find(':'));
    s.remove_prefix(std::min(item.size() + 1, s.size()));
    const char* const last = item.data() + item.size();
    const auto [end, error] = std::from_chars(item.data(), last, factor, std::chars_format::fixed);
    if (error != std::errc() || end != last || !(factor >= kLeast && factor <= 1)) return false;
  }
  out = factors;
  return true;
}

std::string text_of(bool value) {
  return value ? "1" : "0";
}
std::string text_of(int value) {
  return std::to_string(value);
}
std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(const std::optional<std::string>& value) {
  return value.value_or("");
}
std::string text_of(LogLevel value) {
  return std::string(kLevels[static_cast<size_t>(value)]);
}
std::string text_of(Mode value) {
  return std::string(kModes[static_cast<size_t>(value)]);
}
std::string text_of(Config::Spread value) {
  return std::string(kSpreads[static_cast<size_t>(value)]);
}
std::string text_of(const Config::Distance& factors) {
  std::string text;
  for (const double factor : factors) {
    char digits[32];
    const auto [end, error] =
        std::to_chars(digits, digits + sizeof digits, factor, std::chars_format::fixed);
    if (!text.empty()) text += ':';
    text.append(digits, end);
  }
  return text;
}
std::string text_of(Config::Register value) {
  return std::string(kRegisters[static_cast<size_t>(value)]);
}
std::string text_of(DirectVerbs value) {
  return std::string(kDirectVerbs[static_cast<size_t>(value)]);
}
std::string text_of(const RendezvousSetting& value) {
  return rendezvous_show(value);
}
std::string text_of(const decltype(Config::groups)& groups) {
  std::string text;
  for (const auto& group : groups) {
    for (const auto& name : group) {
      if (!text.empty()) text += &name == &group.front() ? ',' : '=';
      text += name;
    }
  }
  return text;
}

template <auto Member>
std::string show(const Config& config) {
  return text_of(config.*Member);
}

constexpr ConfigKey kKeys[] = {
    {"SHIFT_DISABLE", "0 or 1",
     [](std::string_view v, Config& c) { return parse_bool(v, c.disable); },
     show<&Config::disable>},
    {"SHIFT_PRIVILEGED", "0 or 1",
     [](std::string_view v, Config& c) { return parse_bool(v, c.privileged); },
     show<&Config::privileged>},
    {"SHIFT_LOG", "error, warn, info or debug",
     [](std::string_view v, Config& c) { return parse_name(v, kLevels, c.log); },
     show<&Config::log>},
    {"SHIFT_LOG_TARGET", "stderr, syslog, journal or an absolute file name",
     [](std::string_view v, Config& c) { return parse_target(v, c.log_target); },
     show<&Config::log_target>},
    {"SHIFT_MODE", "relaxed, exact or auto, and exact is used",
     [](std::string_view v, Config& c) { return parse_mode(v, c.mode); }, show<&Config::mode>,
     true},
    {"SHIFT_DIRECT_VERBS", "refuse, answer or unprotected",
     [](std::string_view v, Config& c) { return parse_name(v, kDirectVerbs, c.direct_verbs); },
     show<&Config::direct_verbs>},
    {"SHIFT_EVENTS", "a file name",
     [](std::string_view v, Config& c) { return c.events = v, true; }, show<&Config::events>},
    {"SHIFT_STATE_DIR", "an absolute name of a folder, or nothing",
     [](std::string_view v, Config& c) {
       return v.empty() ? c.state_dir.clear(), true : parse_absolute(v, c.state_dir);
     },
     show<&Config::state_dir>},
    // No name is refused here, not even an empty one: a process whose keys are out of reach must
    // learn it, and not go on without keys.
    {"SHIFT_KEY_FILE", "a file name",
     [](std::string_view v, Config& c) { return c.key_file = v, true; }, show<&Config::key_file>},
    {"SHIFT_PAIRS",
     "device=device[=device...],... with each device named once, eight in a group at most",
     [](std::string_view v, Config& c) { return parse_groups(v, c.groups); },
     show<&Config::groups>},
    {"SHIFT_SPREAD", "one or capacity",
     [](std::string_view v, Config& c) { return parse_name(v, kSpreads, c.spread); },
     show<&Config::spread>},
    {"SHIFT_DISTANCE", "three factors from 0.01 to 1 with colons between them, as 1:0.6:0.3",
     [](std::string_view v, Config& c) { return parse_distance(v, c.distance); },
     show<&Config::distance>},
    {"SHIFT_REGISTER", "all, spares or demand",
     [](std::string_view v, Config& c) { return parse_name(v, kRegisters, c.register_on); },
     show<&Config::register_on>},
    {"SHIFT_PEERS", "an absolute file name, or nothing",
     [](std::string_view v, Config& c) {
       return v.empty() ? c.peers.clear(), true : parse_absolute(v, c.peers);
     },
     show<&Config::peers>},
    {"SHIFT_LOCATE", "on or off",
     [](std::string_view v, Config& c) { return parse_bool(v, c.locate); },
     [](const Config& c) { return std::string(c.locate ? "on" : "off"); }},
    {"SHIFT_BORN", "mask or stock",
     [](std::string_view v, Config& c) {
       bool& masked = c.born_masked;
       return v == "mask" ? masked = true, true : v == "stock" ? masked = false, true : false;
     },
     [](const Config& c) { return std::string(c.born_masked ? "mask" : "stock"); }},
    {"SHIFT_JOURNAL", "notes or copies",
     [](std::string_view v, Config& c) {
       bool& notes = c.journal_by_notes;
       return v == "notes" ? notes = true, true : v == "copies" ? notes = false, true : false;
     },
     [](const Config& c) { return std::string(c.journal_by_notes ? "notes" : "copies"); }},
    {"SHIFT_PORT", "1..65535",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 65535, c.port); },
     show<&Config::port>},
    {"SHIFT_RENDEZVOUS",
     "tcp, redis://[[USER]:PASSWORD@]HOST:PORT[,tls][,ca=/FILE][,prefix=NAME], or both",
     [](std::string_view v, Config& c) { return rendezvous_parse(v, c.rendezvous); },
     show<&Config::rendezvous>, false, true},
    {"SHIFT_RC_TIMEOUT_MAX", "8..31",
     [](std::string_view v, Config& c) { return parse_number(v, 8, 31, c.rc_timeout_max); },
     show<&Config::rc_timeout_max>},
    {"SHIFT_COMMAND_MS", "10..60000",
     [](std::string_view v, Config& c) { return parse_number(v, 10, 60000, c.command_ms); },
     show<&Config::command_ms>},
    {"SHIFT_FENCE_MS", "1..60000",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 60000, c.fence_ms); },
     show<&Config::fence_ms>},
    {"SHIFT_EXCHANGE_MS", "1..600000",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 600000, c.exchange_ms); },
     show<&Config::exchange_ms>},
    {"SHIFT_FAILBACK_MS", "-1..3600000",
     [](std::string_view v, Config& c) { return parse_number(v, -1, 3600000, c.failback_ms); },
     show<&Config::failback_ms>},
    {"SHIFT_DRAIN_MS", "1..60000",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 60000, c.drain_ms); },
     show<&Config::drain_ms>},
    {"SHIFT_RENDEZVOUS_MS", "1..600000",
     [](std::string_view v, Config& c) { return parse_number(v, 1, 600000, c.rendezvous_ms); },
     show<&Config::rendezvous_ms>},
};
static_assert(std::size(kKeys) <= kConfigKeysMax);

}  // namespace

std::span<const ConfigKey> config_keys() noexcept {
  return kKeys;
}

}  // namespace shift

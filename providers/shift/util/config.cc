// Reads SHIFT_* variables and /etc/shift.conf, and keeps where each value came from.
#include "util/config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <new>
#include <optional>
#include <string_view>

#include "util/config_keys.h"
#include "util/log_target.h"
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

const ConfigKey* key_find(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (name == key.name) return &key;
  return nullptr;
}

// Where a value came from: a line of the file, or one of these; 0: it is the default.
constexpr int kEnvironment = -1, kFallback = -2;

struct Reading {
  Config config{};
  std::array<int, kConfigKeysMax> sources{};  // in the order of the keys

  int& source(const ConfigKey& key) {
    return sources[static_cast<size_t>(&key - config_keys().data())];
  }
  int& source(const char* name) { return source(*key_find(name)); }
};

void set(const ConfigKey& key, std::string_view value, Reading& reading, int source,
         std::vector<std::string>& warnings, const std::string& where) {
  const bool is_good = key.parse(value, reading.config);
  if (is_good || key.bad_counts) reading.source(key) = source;
  if (is_good) return;
  const std::string shown(key.may_hold_secrets ? "..." : value.substr(0, 200));
  warnings.push_back(where + key.name + "=\"" + shown + "\" is ignored: it must be " + key.range);
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

void read_lines(std::string_view text, const char* file, Reading& reading,
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
    if (const ConfigKey* key = key_find(name))
      set(*key, trim(unquote(trim(line.substr(equals + 1)))), reading, number, warnings, where);
    else
      warnings.push_back(where + "unknown key " + std::string(name.substr(0, 100)));
  }
}

Reading read_all(const ConfigEnv& env, const char* file, std::vector<std::string>& warnings) {
  Reading reading;
  if (file != nullptr)
    if (const auto text = file_read(file)) read_lines(*text, file, reading, warnings);
  // Whoever leaves the name empty in the file means that there are no keys.
  auto& key_file = reading.config.key_file;
  if (key_file && key_file->empty()) key_file.reset();
  if (!env) return reading;
  for (const ConfigKey& key : config_keys())
    if (const char* value = env(key.name))
      set(key, trim(value), reading, kEnvironment, warnings, "");
  return reading;
}

// Opens the log's target, and goes on with stderr if that cannot be done.
void open_target(Reading& reading, bool is_privileged) {
  std::string& target = reading.config.log_target;
  const char* const problem = log_target_set(target.c_str(), is_privileged);
  if (problem == nullptr) return;
  SHIFT_WARN("SHIFT_LOG_TARGET: cannot open %s: %s; lines go to standard error", target.c_str(),
             problem);
  target = "stderr";
  reading.source("SHIFT_LOG_TARGET") = kFallback;
}

// A file that is no settings file may have a mistake in each of its lines.
void tell_mistakes(const std::vector<std::string>& warnings) {
  constexpr size_t kToldMax = 10;
  for (size_t i = 0; i < warnings.size() && i < kToldMax; i++)
    SHIFT_WARN("%s", warnings[i].c_str());
  if (warnings.size() > kToldMax)
    SHIFT_WARN("the settings have %zu more mistakes", warnings.size() - kToldMax);
}

// Fills `reading` as far as memory allows.
void process_read(Reading& reading) noexcept {
  // The user who starts a program that gains privileges chooses its environment, so only the file
  // counts there, which belongs to root. The layer opens ports and makes threads, which such a
  // program may not expect; so the file has to ask for it.
  const bool is_privileged = getauxval(AT_SECURE) != 0;
  std::vector<std::string> warnings;
  try {
    ConfigEnv env;
    if (!is_privileged) env = [](const char* k) { return getenv(k); };
    reading = read_all(env, kConfigFile, warnings);
  } catch (const std::bad_alloc&) {
    SHIFT_WARN("out of memory while reading the configuration: defaults are used");
  }
  Config& config = reading.config;
  if (is_privileged && !config.privileged && !config.disable) {
    config.disable = true;
    reading.source("SHIFT_DISABLE") = kFallback;
  }
  log_set_level(config.log);
  open_target(reading, is_privileged);
  tell_mistakes(warnings);
  if (config.events.empty()) return;
  const char* problem = is_privileged ? "" : events_open(config.events.c_str());
  if (problem == nullptr) return;
  if (!is_privileged)
    SHIFT_WARN("SHIFT_EVENTS: cannot open %s: %s", config.events.c_str(), problem);
  config.events.clear();
  reading.source("SHIFT_EVENTS") = kFallback;
}

const Reading& process_reading() noexcept {
  // It is never destroyed: the layer's threads may read it after the program's exit handlers ran.
  alignas(Reading) static char storage[sizeof(Reading)];
  static const Reading* const instance = [] {
    auto* made = new (storage) Reading;
    process_read(*made);
    return made;
  }();
  return *instance;
}

std::string source_text(int source, const char* file) {
  if (source > 0) return std::string(file) + ":" + std::to_string(source);
  return source == kEnvironment ? "environment" : source == kFallback ? "fallback" : "default";
}

// A value for a line of its own. A cut may not leave half of a character of UTF-8.
std::string shown_value(std::string value) {
  for (char& c : value)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  if (value.size() <= kSettingMax) return value;
  size_t size = kSettingMax - 3;
  while (size > 0 && (static_cast<unsigned char>(value[size]) & 0xc0) == 0x80) size--;
  return value.substr(0, size) + "...";
}

std::vector<Setting> settings_of(const Reading& reading, const char* file) {
  std::vector<Setting> settings;
  for (size_t i = 0; const ConfigKey& key : config_keys())
    settings.push_back(
        {key.name, shown_value(key.show(reading.config)), source_text(reading.sources[i++], file)});
  return settings;
}

}  // namespace

Config config_read(const ConfigEnv& env, const char* file, std::vector<std::string>& warnings) {
  return read_all(env, file, warnings).config;
}

std::vector<Setting> config_settings(const ConfigEnv& env, const char* file) {
  std::vector<std::string> warnings;
  return settings_of(read_all(env, file, warnings), file);
}

std::string settings_text(const std::vector<Setting>& settings, size_t size_max) {
  std::string text;
  for (const Setting& setting : settings) {
    const std::string line = setting.name + "=" + setting.value + "\t" + setting.source + "\n";
    if (text.size() + line.size() > size_max) break;
    text += line;
  }
  return text;
}

std::string config_settings_text(size_t size_max) {
  return settings_text(settings_of(process_reading(), kConfigFile), size_max);
}

const Config& config() noexcept {
  return process_reading().config;
}

}  // namespace shift

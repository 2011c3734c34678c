// Settings and job keys come from files and variables that anybody may have mangled. Whatever they
// hold, each setting stays within its range, and a key file is taken whole or not at all.
#include "util/config.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/targets.h"
#include "util/job_keys.h"
#include "util/unique_fd.h"

namespace shift::fuzz {
namespace {

constexpr const char* kNames[] = {
    "SHIFT_DISABLE",     "SHIFT_PRIVILEGED",   "SHIFT_LOG",        "SHIFT_MODE",
    "SHIFT_PAIRS",       "SHIFT_DIRECT_VERBS", "SHIFT_EVENTS",     "SHIFT_KEY_FILE",
    "SHIFT_PORT",        "SHIFT_FENCE_MS",     "SHIFT_DRAIN_MS",   "SHIFT_RC_TIMEOUT_MAX",
    "SHIFT_EXCHANGE_MS", "SHIFT_FAILBACK_MS",  "SHIFT_COMMAND_MS", "SHIFT_RENDEZVOUS_MS",
    "SHIFT_LOG_TARGET",  "SHIFT_STATE_DIR",    "SHIFT_RENDEZVOUS"};

// One file, written anew for each input.
class File {
 public:
  File() : fd_(mkstemp(path_)) { require(static_cast<bool>(fd_), "no file in /tmp"); }
  ~File() { unlink(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const char* write(std::string_view text) {
    const auto size = static_cast<ssize_t>(text.size());
    require(ftruncate(fd_.get(), 0) == 0 && pwrite(fd_.get(), text.data(), text.size(), 0) == size,
            "the file cannot be written");
    return path_;
  }

 private:
  char path_[32] = "/tmp/shift-fuzz-XXXXXX";
  UniqueFd fd_;
};

File& file() {
  static File one;
  return one;
}

void check_ranges(const Config& c) {
  const auto within = [](int value, int min, int max) { return value >= min && value <= max; };
  require(c.port >= 1 && within(c.rc_timeout_max, 8, 31) && c.fence_ms > 0 && c.exchange_ms > 0 &&
              c.failback_ms >= -1 && within(c.drain_ms, 1, 60000) && c.command_ms > 0 &&
              within(c.rendezvous_ms, 1, 600000),
          "a number is out of its range");
  require(c.mode <= Mode::kAuto, "there is no such mode");
  require(c.state_dir.empty() || c.state_dir[0] == '/', "a folder's name is relative");
  require(c.log_target[0] == '/' || c.log_target == "stderr" || c.log_target == "syslog" ||
              c.log_target == "journal",
          "there is no such target");
  const auto& store = c.rendezvous.redis;
  require(c.rendezvous.tcp || store, "nothing finds a peer");
  RendezvousSetting again;
  require(rendezvous_parse(rendezvous_show(c.rendezvous), again), "what is shown is refused");
  if (store && store->password.empty())
    require(again == c.rendezvous, "what is shown means something else");
  std::set<std::string> seen;
  for (const auto& group : c.groups) {
    require(group.size() >= 2 && group.size() <= 4, "a group has a wrong size");
    for (const auto& name : group)
      require(!name.empty() && seen.insert(name).second, "a device has no name or two groups");
  }
}

bool is_alike(const Config& a, const Config& b) {
  return a.disable == b.disable && a.privileged == b.privileged && a.log == b.log &&
         a.log_target == b.log_target && a.state_dir == b.state_dir && a.mode == b.mode &&
         a.direct_verbs == b.direct_verbs && a.events == b.events && a.key_file == b.key_file &&
         a.groups == b.groups && a.port == b.port && a.rendezvous == b.rendezvous &&
         a.rc_timeout_max == b.rc_timeout_max && a.fence_ms == b.fence_ms &&
         a.exchange_ms == b.exchange_ms && a.failback_ms == b.failback_ms &&
         a.drain_ms == b.drain_ms && a.command_ms == b.command_ms &&
         a.rendezvous_ms == b.rendezvous_ms;
}

void check_file(std::string_view text) {
  std::vector<std::string> warnings;
  check_ranges(config_read(nullptr, file().write(text), warnings));
  std::set<std::string> names;
  for (const Setting& one : config_settings(nullptr, file().write(text)))
    require(names.insert(one.name).second && one.value.size() <= kSettingMax &&
                std::ranges::none_of(one.value, [](char c) { return c >= 0 && c < ' '; }),
            "a setting is shown twice, or takes more than one line");
  size_t lines = 1;
  for (const char c : text) lines += c == '\n';
  require(warnings.size() <= lines, "a line has two warnings");
  for (const auto& warning : warnings)
    require(warning.size() < 1024 && warning.find('\n') == std::string::npos,
            "a warning takes more than one line");
}

// A value means the same in a variable and in a file, which may have it in quotes, too.
void check_value(const char* name, const std::string& value) {
  std::vector<std::string> warnings, of_file;
  const Config here = config_read(
      [&](const char* key) { return std::string_view(key) == name ? value.c_str() : nullptr; },
      nullptr, warnings);
  check_ranges(here);
  require(warnings.size() <= 1, "a value has two warnings");
  if (value.find('\n') != std::string::npos || value.find('"') != std::string::npos) return;
  // An empty variable is a key file that cannot be used, and an empty name in the file means none.
  if (here.key_file && here.key_file->empty()) return;
  const std::string text = std::string(name) + "=" + value;
  if (text.size() > 60000) return;
  require(is_alike(here, config_read(nullptr, file().write(text), of_file)) &&
              warnings.size() == of_file.size(),
          "a file and a variable differ");
  of_file.clear();
  const std::string quoted = std::string(" \t") + name + " = \"" + value + "\"\r\n";
  require(is_alike(here, config_read(nullptr, file().write(quoted), of_file)) &&
              warnings.size() == of_file.size(),
          "quotes change a value");
}

using Secret = std::array<uint8_t, kJobKeySize>;

std::optional<uint8_t> digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<uint8_t>(c - 'A' + 10);
  return std::nullopt;
}

// What docs/security.md and the header say of key files. Nothing: the file is refused.
std::optional<std::vector<Secret>> keys_of(std::string_view text) {
  std::vector<Secret> keys;
  if (text.size() > 4096) return std::nullopt;
  std::string line;
  for (size_t i = 0; i <= text.size(); i++) {
    if (i < text.size() && text[i] != '\n') {
      line += text[i];
      continue;
    }
    const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    while (!line.empty() && is_blank(line.back())) line.pop_back();
    while (!line.empty() && is_blank(line.front())) line.erase(0, 1);
    if (!line.empty() && line[0] != '#') {
      Secret secret;
      if (line.size() != 2 * secret.size()) return std::nullopt;
      for (size_t at = 0; at < secret.size(); at++) {
        const auto high = digit(line[2 * at]), low = digit(line[2 * at + 1]);
        if (!high || !low) return std::nullopt;
        secret[at] = static_cast<uint8_t>(*high << 4 | *low);
      }
      for (const Secret& other : keys)
        if (other == secret) return std::nullopt;
      if (keys.size() == static_cast<size_t>(kJobKeysMax)) return std::nullopt;
      keys.push_back(secret);
    }
    line.clear();
  }
  if (keys.empty()) return std::nullopt;
  return keys;
}

void check_keys(std::string_view text) {
  std::string problem;
  const auto expected = keys_of(text);
  const auto keys = JobKeys::read(file().write(text), problem);
  require((keys != nullptr) == expected.has_value(), "a key file is taken or refused wrongly");
  require((keys == nullptr) == !problem.empty() && problem.size() < 400 &&
              problem.find('\n') == std::string::npos,
          "a problem takes more than one line, or none");
  if (keys == nullptr) return;
  require(static_cast<size_t>(keys->count()) == expected->size(), "the number of keys is wrong");
  for (int i = 0; i < keys->count(); i++) {
    require(std::ranges::equal(keys->secret(i), (*expected)[static_cast<size_t>(i)]),
            "a key is not what the file says");
    require(keys->id(i) != 0 && keys->find(keys->id(i)) == i, "the id of a key is wrong");
  }
}

}  // namespace

void config(std::span<const uint8_t> input) {
  Input in(input);
  const uint8_t form = in.below(static_cast<uint8_t>(2 + std::size(kNames)));
  const auto rest = in.rest();
  const std::string text(rest.begin(), rest.end());
  if (form == 0) return check_file(text);
  if (form == 1) return check_keys(text);
  check_value(kNames[form - 2], text.c_str());
}

}  // namespace shift::fuzz

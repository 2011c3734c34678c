// Whether the manual page of the settings and the sample file say what the layer does: which
// settings there are, which values they take, and which one holds without them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "util/config.h"

namespace shift {
namespace {

using Strings = std::vector<std::string>;

// The layer asks the environment for each key of its table, so the table need not be repeated here.
std::set<std::string> keys_of_the_layer() {
  std::set<std::string> keys;
  Strings warnings;
  config_read([&keys](const char* key) { return keys.insert(key), nullptr; }, nullptr, warnings);
  return keys;
}

Config with(const std::string& key, const std::string& value, Strings& warnings) {
  const ConfigEnv env = [&](const char* asked) { return asked == key ? value.c_str() : nullptr; };
  return config_read(env, nullptr, warnings);
}

Config read_back(const std::string& text, Strings& warnings) {
  const std::string path = testing::TempDir() + "shift_settings_test." + std::to_string(getpid());
  std::ofstream(path) << text;
  const Config config = config_read(nullptr, path.c_str(), warnings);
  EXPECT_EQ(unlink(path.c_str()), 0);
  return config;
}

bool is_accepted(const std::string& key, const std::string& value) {
  Strings warnings;
  (void)with(key, value, warnings);
  return warnings.empty();
}

// A new field of Config does not compile here before it is compared, too.
auto fields(const Config& config) {
  const auto& [disable, privileged, log, log_target, mode, direct_verbs, events, state_dir,
               key_file, groups, spread, distance, register_on, peers, locate, born_masked,
               journal_by_notes, port, rendezvous, rc_timeout_max, fence_ms, exchange_ms,
               failback_ms, drain_ms, command_ms, rendezvous_ms] = config;
  return std::tie(disable, privileged, log, log_target, mode, direct_verbs, events, state_dir,
                  key_file, groups, spread, distance, register_on, peers, locate, born_masked,
                  journal_by_notes, port, rendezvous, rc_timeout_max, fence_ms, exchange_ms,
                  failback_ms, drain_ms, command_ms, rendezvous_ms);
}

bool is_default(const Config& config) {
  return fields(config) == fields(Config{});
}

std::string file_text(const std::string& path) {
  std::ifstream file(std::string(SHIFT_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Strings all_matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  Strings found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
    found.push_back((*at)[1]);
  return found;
}

struct Described {
  std::string values;  // what the page says of the values
  std::string preset;  // and of the default; empty: nothing
};

// What the page says of each setting, in the form "Values: ... Default: ...".
std::map<std::string, Described> described() {
  std::map<std::string, Described> settings;
  std::istringstream lines(file_text("man/shift.conf.5.md"));
  std::map<std::string, std::string> parts;
  std::string key;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, std::regex(R"(\*\*(SHIFT_[A-Z_]+)\*\*)"))) key = match[1];
    if (line.starts_with("# ")) key.clear();
    if (!key.empty()) parts[key] += line + " ";
  }
  for (const auto& [name, part] : parts) {
    const std::string text = std::regex_replace(part, std::regex(" +"), " ");
    std::smatch match;
    const std::regex form("Values: (.*?)\\. Default: ([^ ]+)\\. ");
    EXPECT_TRUE(std::regex_search(text, match, form)) << name << ": " << text;
    settings[name] = {match[1], match[2] == "nothing" ? "" : match[2].str()};
  }
  return settings;
}

TEST(Settings, page_has_the_keys_of_the_layer) {
  std::set<std::string> names;
  for (const auto& [name, ignored] : described()) names.insert(name);
  EXPECT_EQ(names, keys_of_the_layer());
}

TEST(Settings, page_has_the_defaults) {
  for (const auto& [key, setting] : described()) {
    Strings warnings;
    EXPECT_TRUE(is_default(read_back(key + " = " + setting.preset + "\n", warnings))) << key;
    EXPECT_EQ(warnings, Strings{}) << key;
  }
}

TEST(Settings, values_of_the_page_are_accepted) {
  for (const auto& [key, setting] : described()) {
    for (const std::string& value : all_matches(setting.values, R"(\*\*([^*]+)\*\*)"))
      EXPECT_TRUE(is_accepted(key, value)) << key << "=" << value;
  }
}

// What the layer says of a wrong value names the right ones.
TEST(Settings, page_has_all_values) {
  for (const auto& [key, setting] : described()) {
    Strings warnings;
    (void)with(key, "?", warnings);
    if (warnings.empty()) continue;  // a file may have any name
    std::smatch match;
    if (std::regex_search(warnings[0], match, std::regex(R"((-?\d+)\.\.(\d+))"))) {
      const std::string range = match[1].str() + " to " + match[2].str();
      EXPECT_TRUE(setting.values.starts_with(range)) << key << ": " << setting.values;
      continue;
    }
    const std::string said = warnings[0].substr(warnings[0].find("must be"));
    for (const std::string& word : all_matches(said, R"(\b([a-z0-9]+)\b)")) {
      if (!is_accepted(key, word)) continue;
      EXPECT_NE(setting.values.find("**" + word + "**"), std::string::npos) << key << "=" << word;
    }
  }
}

constexpr char kSample[] = "etc/shift.conf";

// The sample's lines; those of `keys`, or of all keys without it, are no comments any more.
std::string sample_with(const std::set<std::string>& keys, bool all = false) {
  std::istringstream lines(file_text(kSample));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const bool is_setting = line.starts_with("#SHIFT_");
    const bool is_wanted = is_setting && (all || keys.count(line.substr(1, line.find(' ') - 1)));
    text += (is_wanted ? line.substr(1) : line) + "\n";
  }
  return text;
}

// A setting is "#KEY = VALUE" after one to three lines that tell what it is.
std::map<std::string, std::string> sample_settings() {
  std::istringstream lines(file_text(kSample));
  std::map<std::string, std::string> settings;
  int told = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 115u) << line;
    std::smatch match;
    if (std::regex_match(line, match, std::regex("#(SHIFT_[A-Z_]+) =( [^ ]+)?"))) {
      const std::string key = match[1];
      EXPECT_TRUE(told >= 1 && told <= 3) << key << " has " << told << " lines before it";
      EXPECT_TRUE(settings.emplace(key, match[2].matched ? match[2].str().substr(1) : "").second)
          << key << " is there twice";
    } else {
      EXPECT_TRUE(line.empty() || line == "#" || line.starts_with("# ")) << line;
    }
    told = line.starts_with("# ") ? told + 1 : 0;
  }
  return settings;
}

TEST(Sample, has_the_keys_of_the_layer) {
  std::set<std::string> names;
  for (const auto& [name, ignored] : sample_settings()) names.insert(name);
  EXPECT_EQ(names, keys_of_the_layer());
}

TEST(Sample, has_the_defaults_of_the_page) {
  const auto page = described();
  for (const auto& [key, value] : sample_settings()) EXPECT_EQ(value, page.at(key).preset) << key;
}

TEST(Sample, changes_nothing) {
  Strings warnings;
  EXPECT_TRUE(is_default(read_back(sample_with({}), warnings)));
  EXPECT_EQ(warnings, Strings{});
}

TEST(Sample, each_line_and_all_together_are_read_without_a_complaint) {
  std::vector<std::string> texts{sample_with({}, true)};
  for (const std::string& key : keys_of_the_layer()) texts.push_back(sample_with({key}));
  for (const std::string& text : texts) {
    Strings warnings;
    EXPECT_NE(text, sample_with({}));
    EXPECT_TRUE(is_default(read_back(text, warnings))) << text;
    EXPECT_EQ(warnings, Strings{});
  }
}

// Shows that the tests above see what is wrong in a file.
TEST(Sample, mistakes_are_seen) {
  for (const char* mistake : {"SHIFT_PORT = 0", "SHIFT_PROT = 1", "no setting"}) {
    Strings warnings;
    (void)read_back(sample_with({}, true) + mistake + "\n", warnings);
    EXPECT_EQ(warnings.size(), 1u) << mistake;
  }
  Strings warnings;
  EXPECT_FALSE(is_default(read_back(sample_with({}) + "SHIFT_PORT = 1\n", warnings)));
}

// Shows that the comparisons above see each setting.
TEST(Settings, each_key_has_a_value_that_is_no_default) {
  const Strings others = {"1",  "exact",       "debug",  "answer",   "stock", "a=b",    "9",  "99",
                          "/a", "redis://h:1", "copies", "capacity", "1:1:1", "spares", "off"};
  for (const std::string& key : keys_of_the_layer()) {
    const bool is_seen = std::ranges::any_of(others, [&key](const std::string& value) {
      Strings warnings;
      return !is_default(with(key, value, warnings)) && warnings.empty();
    });
    EXPECT_TRUE(is_seen) << key;
  }
}

}  // namespace
}  // namespace shift

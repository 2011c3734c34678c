// Tests the configuration: accepted and refused values, the file, and that the environment wins.
#include "util/config.h"

#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

namespace shift {
namespace {

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() : path_(::testing::TempDir() + "shift_config_" + std::to_string(getpid())) {}
  ~ConfigTest() override { unlink(path_.c_str()); }

  Config read(const std::map<std::string, std::string>& env, const char* text = nullptr) {
    if (text != nullptr) std::ofstream(path_) << text;
    warnings_.clear();
    return config_read(
        [&](const char* key) -> const char* {
          auto it = env.find(key);
          return it == env.end() ? nullptr : it->second.c_str();
        },
        text != nullptr ? path_.c_str() : nullptr, warnings_);
  }

  std::map<std::string, Setting> shown(const std::map<std::string, std::string>& env,
                                       const char* text) {
    std::ofstream(path_) << text;
    std::map<std::string, Setting> settings;
    const auto look_up = [&](const char* key) {
      const auto it = env.find(key);
      return it == env.end() ? nullptr : it->second.c_str();
    };
    for (const Setting& one : config_settings(look_up, path_.c_str())) settings[one.name] = one;
    return settings;
  }

  std::string path_;
  std::vector<std::string> warnings_;
};

TEST_F(ConfigTest, DefaultsHoldWithoutAnySetting) {
  const Config c = read({});
  EXPECT_FALSE(c.disable || c.privileged);
  EXPECT_EQ(c.log, LogLevel::kWarn);
  EXPECT_EQ(c.mode, Mode::kRelaxed);
  EXPECT_EQ(c.log_target, "stderr");
  EXPECT_EQ(c.events, "");
  EXPECT_EQ(c.state_dir, "/dev/shm");
  EXPECT_EQ(c.key_file, std::nullopt);
  EXPECT_TRUE(c.groups.empty());
  EXPECT_EQ(c.distance, (Config::Distance{1, 0.6, 0.3}));
  EXPECT_EQ(c.register_on, Config::Register::kAll);
  EXPECT_EQ(c.port, 9473);
  EXPECT_EQ(c.rc_timeout_max, 11);
  EXPECT_EQ(c.fence_ms, 2000);
  EXPECT_EQ(c.exchange_ms, 3000);
  EXPECT_EQ(c.failback_ms, 1000);
  EXPECT_EQ(c.drain_ms, 500);
  EXPECT_EQ(c.rendezvous_ms, 10000);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(ConfigTest, EnvironmentSetsEveryKey) {
  const Config c = read({{"SHIFT_DISABLE", "1"},
                         {"SHIFT_PRIVILEGED", "1"},
                         {"SHIFT_LOG", "debug"},
                         {"SHIFT_LOG_TARGET", "journal"},
                         {"SHIFT_STATE_DIR", "/run/shift"},
                         {"SHIFT_MODE", "exact"},
                         {"SHIFT_EVENTS", "/tmp/e.json"},
                         {"SHIFT_KEY_FILE", "/etc/job.key"},
                         {"SHIFT_PAIRS", "mlx5_0=mlx5_1, mlx5_2 = mlx5_3= mlx5_4"},
                         {"SHIFT_DISTANCE", "0.95:.5:0.01"},
                         {"SHIFT_REGISTER", "demand"},
                         {"SHIFT_PORT", "65535"},
                         {"SHIFT_RC_TIMEOUT_MAX", "8"},
                         {"SHIFT_FENCE_MS", "7"},
                         {"SHIFT_EXCHANGE_MS", "8"},
                         {"SHIFT_FAILBACK_MS", "-1"},
                         {"SHIFT_DRAIN_MS", "10"},
                         {"SHIFT_RENDEZVOUS_MS", "9"}});
  EXPECT_TRUE(warnings_.empty());
  EXPECT_TRUE(c.disable && c.privileged);
  EXPECT_EQ(c.log, LogLevel::kDebug);
  EXPECT_EQ(c.log_target, "journal");
  EXPECT_EQ(c.state_dir, "/run/shift");
  EXPECT_EQ(c.mode, Mode::kExact);
  EXPECT_EQ(c.events, "/tmp/e.json");
  EXPECT_EQ(c.key_file, "/etc/job.key");
  using Names = std::vector<std::string>;
  EXPECT_EQ(c.groups, (std::vector<Names>{{"mlx5_0", "mlx5_1"}, {"mlx5_2", "mlx5_3", "mlx5_4"}}));
  EXPECT_EQ(c.distance, (Config::Distance{0.95, 0.5, 0.01}));
  EXPECT_EQ(c.register_on, Config::Register::kDemand);
  EXPECT_EQ(c.port, 65535);
  EXPECT_EQ(c.rc_timeout_max, 8);
  EXPECT_EQ(c.fence_ms, 7);
  EXPECT_EQ(c.exchange_ms, 8);
  EXPECT_EQ(c.failback_ms, -1);
  EXPECT_EQ(c.drain_ms, 10);
  EXPECT_EQ(c.rendezvous_ms, 9);
}

TEST_F(ConfigTest, BadValuesAreNamedOnceAndLeaveTheDefault) {
  const std::pair<const char*, const char*> cases[] = {
      {"SHIFT_DISABLE", "maybe"},
      {"SHIFT_LOG", "loud"},
      {"SHIFT_PORT", "0"},
      {"SHIFT_PORT", "65536"},
      {"SHIFT_PORT", "12x"},
      {"SHIFT_PORT", ""},
      {"SHIFT_PORT", "99999999999"},
      {"SHIFT_RC_TIMEOUT_MAX", "7"},
      {"SHIFT_FENCE_MS", "-1"},
      {"SHIFT_RC_TIMEOUT_MAX", "32"},
      {"SHIFT_PAIRS", "mlx5_0"},
      {"SHIFT_PAIRS", "a=a"},
      {"SHIFT_PAIRS", "a=b,b=c"},
      {"SHIFT_PAIRS", "a=b=a"},
      {"SHIFT_PAIRS", "a=b="},
      {"SHIFT_PAIRS", "=a"},
      {"SHIFT_PAIRS", "a=b=c=d=e=f=g=h=i"},
      {"SHIFT_DISTANCE", ""},
      {"SHIFT_DISTANCE", "1"},
      {"SHIFT_DISTANCE", "1:0.6"},
      {"SHIFT_DISTANCE", "1:0.6:0.3:0.2"},
      {"SHIFT_DISTANCE", "1:0.6:0.3:"},
      {"SHIFT_DISTANCE", "1:0.6:0"},
      {"SHIFT_DISTANCE", "1.1:0.6:0.3"},
      {"SHIFT_DISTANCE", "1:-0.6:0.3"},
      {"SHIFT_DISTANCE", "1: 0.6:0.3"},
      {"SHIFT_DISTANCE", "1:0.6:nan"},
      {"SHIFT_DISTANCE", "1:0,6:0,3"},
      {"SHIFT_DISTANCE", "1:6e-1:0.3"},
      {"SHIFT_REGISTER", "none"},
      {"SHIFT_FAILBACK_MS", "-2"},
      {"SHIFT_DRAIN_MS", "0"},
      {"SHIFT_DRAIN_MS", "60001"},
      {"SHIFT_LOG_TARGET", ""},
      {"SHIFT_LOG_TARGET", "stdout"},
      {"SHIFT_LOG_TARGET", "log"},
      {"SHIFT_STATE_DIR", "shm"},
      {"SHIFT_STATE_DIR", "./shm"},
  };
  for (const auto& [key, value] : cases) {
    const Config c = read({{key, value}});
    ASSERT_EQ(warnings_.size(), 1u) << key << "=" << value;
    EXPECT_NE(warnings_[0].find(key), std::string::npos);
    EXPECT_NE(warnings_[0].find("\"" + std::string(value) + "\""), std::string::npos);
    EXPECT_NE(warnings_[0].find("must be"), std::string::npos);
    EXPECT_EQ(c.port, 9473);
    EXPECT_EQ(c.rc_timeout_max, 11);
    EXPECT_TRUE(c.groups.empty());
    EXPECT_EQ(c.distance, (Config::Distance{1, 0.6, 0.3}));
    EXPECT_EQ(c.log_target, "stderr");
    EXPECT_EQ(c.state_dir, "/dev/shm");
  }
}

TEST_F(ConfigTest, TheLogGoesToADaemonOrAnAbsoluteName) {
  for (const char* target : {"stderr", "syslog", "journal", "/var/log/shift.log"})
    EXPECT_EQ(read({{"SHIFT_LOG_TARGET", target}}).log_target, target);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(ConfigTest, NothingIsToldWithoutAFolder) {
  EXPECT_EQ(read({{"SHIFT_STATE_DIR", ""}}).state_dir, "");
  EXPECT_EQ(read({}, "SHIFT_STATE_DIR =\n").state_dir, "");
  EXPECT_EQ(read({{"SHIFT_STATE_DIR", "/run"}}, "SHIFT_STATE_DIR =\n").state_dir, "/run");
  EXPECT_TRUE(warnings_.empty());
}

// A user who mistypes `exact` must not get a weaker mode.
TEST_F(ConfigTest, AnUnknownModeIsTheStrictest) {
  for (const char* value : {"exakt", "", "Relaxed", "1"}) {
    EXPECT_EQ(read({{"SHIFT_MODE", value}}, "SHIFT_MODE = relaxed").mode, Mode::kExact) << value;
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find("must be relaxed, exact or auto"), std::string::npos);
  }
  EXPECT_EQ(read({{"SHIFT_MODE", "relaxed"}}, "SHIFT_MODE = exact").mode, Mode::kRelaxed);
  EXPECT_EQ(read({{"SHIFT_MODE", "auto"}}, "SHIFT_MODE = exact").mode, Mode::kAuto);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(ConfigTest, DirectVerbsAreRefusedUnlessAsked) {
  EXPECT_EQ(read({}).direct_verbs, DirectVerbs::kRefuse);
  EXPECT_EQ(read({{"SHIFT_DIRECT_VERBS", "answer"}}).direct_verbs, DirectVerbs::kAnswer);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(read({}, "SHIFT_DIRECT_VERBS = unprotected").direct_verbs, DirectVerbs::kUnprotected);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(read({{"SHIFT_DIRECT_VERBS", "1"}}).direct_verbs, DirectVerbs::kRefuse);
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(ConfigTest, AGroupHasTwoToFourDevices) {
  EXPECT_EQ(read({{"SHIFT_PAIRS", "a=b=c=d=e=f=g=h"}}).groups.at(0).size(), 8u);
  EXPECT_EQ(read({{"SHIFT_PAIRS", ",a=b,,"}}).groups.size(), 1u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(ConfigTest, FileSetsAndEnvironmentWins) {
  const Config c = read({{"SHIFT_PORT", "1111"}},
                        "# comment\n\n  SHIFT_PORT = 2222\r\nSHIFT_FENCE_MS=33\nSHIFT_LOG = info");
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(c.port, 1111);
  EXPECT_EQ(c.fence_ms, 33);
  EXPECT_EQ(c.log, LogLevel::kInfo);
}

TEST_F(ConfigTest, QuotesAroundAValueOfTheFileAreNotOfIt) {
  const Config c =
      read({}, "SHIFT_PAIRS = \"a=b, c=d\"\nSHIFT_PORT=\"2222\" \nSHIFT_LOG = \" info \"");
  EXPECT_TRUE(warnings_.empty());
  using Names = std::vector<std::string>;
  EXPECT_EQ(c.groups, (std::vector<Names>{{"a", "b"}, {"c", "d"}}));
  EXPECT_EQ(c.port, 2222);
  EXPECT_EQ(c.log, LogLevel::kInfo);
  // A single quote mark is a mistake, and so is a second pair of quotes.
  EXPECT_EQ(read({}, "SHIFT_PORT = \"\nSHIFT_PORT = \"\"1\"\"\nSHIFT_PORT = \"1").port, 9473);
  EXPECT_EQ(warnings_.size(), 3u);
}

TEST_F(ConfigTest, AQuoteThatIsNotClosedIsPartOfTheValue) {
  for (const char* value : {"\"", "\"/tmp/e", "/tmp/e\""}) {
    EXPECT_EQ(read({}, ("SHIFT_EVENTS=" + std::string(value) + "\n").c_str()).events, value);
    EXPECT_TRUE(warnings_.empty());
  }
  EXPECT_EQ(read({}, "SHIFT_EVENTS=\n").events, "");
}

TEST_F(ConfigTest, AFolderInTheFilesPlaceIsNoSetting) {
  alarm(10);
  errno = EINTR;
  std::vector<std::string> warnings;
  const std::string folder = ::testing::TempDir();
  const Config c = config_read([](const char*) { return nullptr; }, folder.c_str(), warnings);
  alarm(0);
  EXPECT_EQ(c.port, 9473);
  EXPECT_TRUE(warnings.empty());
}

// A signal that interrupted an earlier call of the program has left its number in errno.
TEST_F(ConfigTest, AnOldErrnoChangesNothing) {
  alarm(10);
  errno = EINTR;
  EXPECT_EQ(read({}, "SHIFT_PORT=99\n").port, 99);
  alarm(0);
}

TEST_F(ConfigTest, ALongValueIsCutInItsWarning) {
  read({{"SHIFT_PORT", std::string(300, '7')}});
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find('"' + std::string(200, '7') + '"'), std::string::npos)
      << warnings_[0];
}

// A program that gains privileges reads only the file.
TEST_F(ConfigTest, TheFileAloneIsReadWhereThereIsNoEnvironment) {
  std::ofstream(path_) << "SHIFT_PORT = 2222\nSHIFT_KEY_FILE = /etc/job.key\n";
  setenv("SHIFT_PORT", "1111", 1);
  setenv("SHIFT_KEY_FILE", "/tmp/job.key", 1);
  const Config c = config_read({}, path_.c_str(), warnings_);
  EXPECT_EQ(c.port, 2222);
  EXPECT_EQ(c.key_file, "/etc/job.key");
  unsetenv("SHIFT_PORT");
  unsetenv("SHIFT_KEY_FILE");
  EXPECT_TRUE(warnings_.empty());
}

// A script whose variable is not set exports an empty name, and must not get a job without keys.
TEST_F(ConfigTest, AnEmptyNameOfAKeyFileIsANameAllTheSame) {
  for (const char* value : {"", " \t"}) {
    EXPECT_EQ(read({{"SHIFT_KEY_FILE", value}}, "SHIFT_KEY_FILE = /etc/job.key").key_file, "");
    EXPECT_EQ(read({{"SHIFT_KEY_FILE", value}}).key_file, "");
  }
  EXPECT_EQ(read({{"SHIFT_KEY_FILE", ""}}, "SHIFT_KEY_FILE =\n").key_file, "");
  EXPECT_EQ(read({}, "SHIFT_KEY_FILE =\n").key_file, std::nullopt) << "who writes the file sees it";
  EXPECT_EQ(read({}, "SHIFT_KEY_FILE = \"\"\n").key_file, std::nullopt);
  EXPECT_EQ(read({{"SHIFT_KEY_FILE", "/k"}}, "SHIFT_KEY_FILE =\n").key_file, "/k");
  EXPECT_EQ(read({}, "SHIFT_PORT = 2222\n").key_file, std::nullopt);
  EXPECT_TRUE(warnings_.empty()) << "the reader of the keys says what is wrong";
}

TEST_F(ConfigTest, BadEnvironmentKeepsTheFilesValue) {
  const Config c = read({{"SHIFT_PORT", "x"}}, "SHIFT_PORT = 2222\n");
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_EQ(c.port, 2222);
}

TEST_F(ConfigTest, FileMistakesNameTheirLine) {
  read({}, "SHIFT_PORT = 1\nnonsense\nSHIFT_PROT = 5\n");
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[0].find(":2: "), std::string::npos);
  EXPECT_TRUE(warnings_[1].ends_with(":3: unknown key SHIFT_PROT"));
}

TEST_F(ConfigTest, ALongNameIsCutInTheWarning) {
  read({}, (std::string(500, 'X') + " = 1\n").c_str());
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_TRUE(warnings_[0].ends_with(" " + std::string(100, 'X')));
}

TEST_F(ConfigTest, EachSettingSaysWhereItCameFrom) {
  const auto settings = shown({{"SHIFT_PORT", " 01111"}, {"SHIFT_FENCE_MS", "bad"}},
                              "SHIFT_PORT = 2\nSHIFT_DRAIN_MS = 4\nSHIFT_DRAIN_MS = 5\n"
                              "SHIFT_DRAIN_MS = bad\nSHIFT_DISABLE = yes\nSHIFT_FENCE_MS = 9\n");
  const auto is = [&](const char* name, const std::string& value, const std::string& source) {
    const Setting& one = settings.at(name);
    EXPECT_EQ(one.value, value) << name;
    EXPECT_EQ(one.source, source) << name;
  };
  is("SHIFT_PORT", "1111", "environment");
  is("SHIFT_DRAIN_MS", "5", path_ + ":3");
  is("SHIFT_DISABLE", "1", path_ + ":5");
  is("SHIFT_FENCE_MS", "9", path_ + ":6");
  is("SHIFT_EXCHANGE_MS", "3000", "default");
  is("SHIFT_LOG", "warn", "default");
}

// What is shown is what holds: a bad mode means the strictest one.
TEST_F(ConfigTest, ABadModeIsShownAsWhatItMeans) {
  for (const char* file : {"", "SHIFT_MODE = relaxed\n", "SHIFT_MODE = exact\n"}) {
    const Setting mode = shown({{"SHIFT_MODE", "exakt"}}, file).at("SHIFT_MODE");
    EXPECT_EQ(mode.value, "exact");
    EXPECT_EQ(mode.source, "environment");
  }
}

// A line that was shown sets the same again.
TEST_F(ConfigTest, AShownValueCanBeSet) {
  const std::map<std::string, std::string> env = {
      {"SHIFT_DISABLE", "1"},          {"SHIFT_LOG", "debug"},
      {"SHIFT_MODE", "exact"},         {"SHIFT_DIRECT_VERBS", "answer"},
      {"SHIFT_EVENTS", "/e"},          {"SHIFT_KEY_FILE", "/etc/job.key"},
      {"SHIFT_FAILBACK_MS", "-1"},     {"SHIFT_PAIRS", "a=b,c=d=e"},
      {"SHIFT_LOG_TARGET", "/var/l"},  {"SHIFT_STATE_DIR", "/run/s"},
      {"SHIFT_DISTANCE", "1:0.55:0.1"}};
  auto settings = shown(env, "");
  for (const auto& [name, value] : env) EXPECT_EQ(settings.at(name).value, value);
  EXPECT_EQ(shown({{"SHIFT_PAIRS", " c = d , a = b,"}}, "").at("SHIFT_PAIRS").value, "c=d,a=b");
  EXPECT_EQ(shown({{"SHIFT_KEY_FILE", ""}}, "").at("SHIFT_KEY_FILE").source, "environment");
  EXPECT_EQ(shown({}, "SHIFT_STATE_DIR =\n").at("SHIFT_STATE_DIR").value, "");
}

// Whoever sets a value must not be able to forge a line, nor to push the others out.
TEST_F(ConfigTest, AShownValueIsOneLineOfBoundedLength) {
  const std::string e_acute = "\xc3\xa9";
  const auto value = [&](const std::string& name) {
    return shown({{"SHIFT_EVENTS", name}}, "").at("SHIFT_EVENTS").value;
  };
  EXPECT_EQ(value("/a\nSHIFT_DISABLE=1\tdefault\x1b"), "/a?SHIFT_DISABLE=1?default?");
  EXPECT_EQ(value(std::string(kSettingMax, 'x')), std::string(kSettingMax, 'x'));
  EXPECT_EQ(value(std::string(kSettingMax + 1, 'x')), std::string(kSettingMax - 3, 'x') + "...");
  std::string accents;
  while (accents.size() < 2 * kSettingMax) accents += e_acute;
  EXPECT_EQ(value(accents), accents.substr(0, (kSettingMax - 3) / 2 * 2) + "...");
}

TEST_F(ConfigTest, SettingsAreCutByWholeLines) {
  const std::vector<Setting> settings = {{"A", "1", "default"}, {"B", "", "environment"}};
  const std::string first = "A=1\tdefault\n", both = first + "B=\tenvironment\n";
  EXPECT_EQ(settings_text(settings, both.size()), both);
  EXPECT_EQ(settings_text(settings, both.size() - 1), first);
  EXPECT_EQ(settings_text(settings, first.size() - 1), "");
  // All settings fit into the record of a process, however long their values are.
  std::map<std::string, std::string> env;
  for (const char* name : {"EVENTS", "KEY_FILE", "LOG_TARGET", "STATE_DIR"})
    env[std::string("SHIFT_") + name] = "/" + std::string(5000, 'x');
  env["SHIFT_PAIRS"] = std::string(5000, 'x') + "=b";
  std::vector<Setting> longest;
  for (const auto& [name, one] : shown(env, "")) longest.push_back(one);
  EXPECT_EQ(settings_text(longest, 100000), settings_text(longest, 4095));
}

// Runs in a child, since a process reads its settings once. Returns what config_settings_text()
// gives there, after what the child says.
std::string settings_in_child(const std::vector<std::pair<const char*, const char*>>& env) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    for (const auto& [name, value] : env) setenv(name, value, 1);
    const std::string text = config_settings_text(4095);
    _exit(write(ends[1], text.data(), text.size()) < 0);
  }
  close(ends[1]);
  std::string text(20000, '\0');
  size_t used = 0;
  for (ssize_t n; (n = read(ends[0], text.data() + used, text.size() - used)) > 0;)
    used += static_cast<size_t>(n);
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return text.substr(0, used);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What cannot be opened is not in force.
TEST(Process, ShowsWhatIsInForce) {
  if (access(kConfigFile, F_OK) == 0) GTEST_SKIP() << kConfigFile << " decides on this host";
  const std::string text = settings_in_child({{"SHIFT_LOG_TARGET", "/no-such-folder/log"},
                                              {"SHIFT_EVENTS", "/no-such-folder/events"},
                                              {"SHIFT_PORT", "1234"}});
  EXPECT_TRUE(has(text, "warn: SHIFT_LOG_TARGET: cannot open /no-such-folder/log: No such file"));
  EXPECT_TRUE(has(text, "warn: SHIFT_EVENTS: cannot open /no-such-folder/events: No such file"));
  EXPECT_TRUE(has(text, "SHIFT_LOG_TARGET=stderr\tfallback\n")) << text;
  EXPECT_TRUE(has(text, "SHIFT_EVENTS=\tfallback\n"));
  EXPECT_TRUE(has(text, "SHIFT_PORT=1234\tenvironment\n"));
  EXPECT_TRUE(has(text, "SHIFT_RENDEZVOUS_MS=10000\tdefault\n"));
}

// A settings file that is none at all must not fill the log of each process.
TEST(Process, TellsOfAFewMistakes) {
  std::vector<std::pair<const char*, const char*>> env;
  for (const char* name : {"SHIFT_DISABLE", "SHIFT_PRIVILEGED", "SHIFT_LOG", "SHIFT_LOG_TARGET",
                           "SHIFT_MODE", "SHIFT_DIRECT_VERBS", "SHIFT_STATE_DIR", "SHIFT_PAIRS",
                           "SHIFT_PORT", "SHIFT_FENCE_MS", "SHIFT_EXCHANGE_MS", "SHIFT_DRAIN_MS"})
    env.emplace_back(name, "?");
  const std::string text = settings_in_child(env);
  EXPECT_EQ(std::ranges::count(text.substr(0, text.find("SHIFT_DISABLE=0")), '\n'), 11) << text;
  EXPECT_TRUE(has(text, "]: warn: the settings have 2 more mistakes\n"));
}

// What `config()` says in a program that gains privileges: this program, as another user's
// set-user-ID file.
TEST(Privileged, ShowsWhatHolds) {
  if (getenv("SHIFT_TEST_PRIVILEGED") == nullptr) GTEST_SKIP() << "run by the test below";
  if (getauxval(AT_SECURE) == 0) _exit(2);
  const bool is_off = config().disable;
  const std::string said = config_settings_text(4095);
  const bool is_told = said.find("SHIFT_DISABLE=1\tfallback\n") != std::string::npos;
  _exit(is_off && is_told ? 0 : 1);
}

TEST(Privileged, TheLayerIsOff) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, which may make another user's file";
  if (access(kConfigFile, F_OK) == 0) GTEST_SKIP() << kConfigFile << " decides on this host";
  const std::string path = ::testing::TempDir() + "shift_privileged_" + std::to_string(getpid());
  std::filesystem::copy_file("/proc/self/exe", path);
  ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
  ASSERT_EQ(chmod(path.c_str(), 04755), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("SHIFT_TEST_PRIVILEGED", "1", 1);
    setenv("SHIFT_PRIVILEGED", "1", 1);  // the environment does not count
    execl(path.c_str(), path.c_str(), "--gtest_filter=Privileged.ShowsWhatHolds", nullptr);
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  unlink(path.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2)
    GTEST_SKIP() << "set-user-ID files mean nothing on this file system";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace shift

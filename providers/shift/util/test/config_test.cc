// Tests the configuration: accepted and refused values, the file, and that the environment wins.
#include "util/config.h"

#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

  std::string path_;
  std::vector<std::string> warnings_;
};

TEST_F(ConfigTest, DefaultsHoldWithoutAnySetting) {
  const Config c = read({});
  EXPECT_FALSE(c.disable || c.privileged);
  EXPECT_EQ(c.log, LogLevel::kWarn);
  EXPECT_EQ(c.mode, Mode::kRelaxed);
  EXPECT_EQ(c.events, "");
  EXPECT_EQ(c.key_file, std::nullopt);
  EXPECT_TRUE(c.groups.empty());
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
                         {"SHIFT_MODE", "exact"},
                         {"SHIFT_EVENTS", "/tmp/e.json"},
                         {"SHIFT_KEY_FILE", "/etc/job.key"},
                         {"SHIFT_PAIRS", "mlx5_0=mlx5_1, mlx5_2 = mlx5_3= mlx5_4"},
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
  EXPECT_EQ(c.mode, Mode::kExact);
  EXPECT_EQ(c.events, "/tmp/e.json");
  EXPECT_EQ(c.key_file, "/etc/job.key");
  using Names = std::vector<std::string>;
  EXPECT_EQ(c.groups, (std::vector<Names>{{"mlx5_0", "mlx5_1"}, {"mlx5_2", "mlx5_3", "mlx5_4"}}));
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
      {"SHIFT_DISABLE", "maybe"},     {"SHIFT_LOG", "loud"},         {"SHIFT_PORT", "0"},
      {"SHIFT_PORT", "65536"},        {"SHIFT_PORT", "12x"},         {"SHIFT_PORT", ""},
      {"SHIFT_PORT", "99999999999"},  {"SHIFT_RC_TIMEOUT_MAX", "7"}, {"SHIFT_FENCE_MS", "-1"},
      {"SHIFT_RC_TIMEOUT_MAX", "32"}, {"SHIFT_PAIRS", "mlx5_0"},     {"SHIFT_PAIRS", "a=a"},
      {"SHIFT_PAIRS", "a=b,b=c"},     {"SHIFT_PAIRS", "a=b=a"},      {"SHIFT_PAIRS", "a=b="},
      {"SHIFT_PAIRS", "=a"},          {"SHIFT_PAIRS", "a=b=c=d=e"},  {"SHIFT_FAILBACK_MS", "-2"},
      {"SHIFT_DRAIN_MS", "0"},        {"SHIFT_DRAIN_MS", "60001"},
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
  }
}

// A user who mistypes `exact` must not get a weaker mode.
TEST_F(ConfigTest, AnUnknownModeIsTheStrictest) {
  for (const char* value : {"exakt", "", "Relaxed", "1"}) {
    EXPECT_EQ(read({{"SHIFT_MODE", value}}, "SHIFT_MODE = relaxed").mode, Mode::kExact) << value;
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_NE(warnings_[0].find("must be relaxed or exact"), std::string::npos);
  }
  EXPECT_EQ(read({{"SHIFT_MODE", "relaxed"}}, "SHIFT_MODE = exact").mode, Mode::kRelaxed);
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
  EXPECT_EQ(read({{"SHIFT_PAIRS", "a=b=c=d"}}).groups.at(0).size(), 4u);
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

// What `config()` says in a program that gains privileges: this program, as another user's
// set-user-ID file.
TEST(Privileged, ShowsWhatHolds) {
  if (getenv("SHIFT_TEST_PRIVILEGED") == nullptr) GTEST_SKIP() << "run by the test below";
  if (getauxval(AT_SECURE) == 0) _exit(2);
  _exit(config().disable ? 0 : 1);
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

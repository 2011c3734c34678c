// Which files of job keys are taken and which refused, and where the secrets are not to be found.
#include "util/job_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace shift {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kOther = 65534;

// A key's line: the digit 64 times.
std::string line_of(char digit) {
  return std::string(2 * kJobKeySize, digit) + "\n";
}

class JobKeysTest : public ::testing::Test {
 protected:
  JobKeysTest() : path_(::testing::TempDir() + "shift_job_keys_" + std::to_string(getpid())) {}
  ~JobKeysTest() override { fs::remove(path_); }

  void write(const std::string& text, mode_t mode = 0600) {
    fs::remove(path_);
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }

  std::unique_ptr<JobKeys> read() {
    problem_.clear();
    alarm(10);  // a FIFO must not hold us up
    auto keys = JobKeys::read(path_, problem_);
    alarm(0);
    return keys;
  }

  // The file is refused in one line, which names it and says `why`.
  void expect_refused(const std::string& why) {
    EXPECT_EQ(read(), nullptr);
    EXPECT_TRUE(problem_.starts_with("the key file " + path_ + " cannot be used: ")) << problem_;
    EXPECT_NE(problem_.find(why), std::string::npos) << problem_;
    EXPECT_NE(problem_.find("; "), std::string::npos) << "no remedy: " << problem_;
    EXPECT_EQ(problem_.find('\n'), std::string::npos) << problem_;
  }

  std::string path_;
  std::string problem_;
};

TEST_F(JobKeysTest, TakesKeysInTheirOrder) {
  write("# the job's keys\n\n  \t" + std::string(64, 'a') + " \r\n#" + line_of('b') + line_of('7') +
        std::string(32, 'C') + std::string(32, 'f'));
  const auto keys = read();
  ASSERT_NE(keys, nullptr) << problem_;
  EXPECT_EQ(problem_, "");
  ASSERT_EQ(keys->count(), 3);
  const auto all = [](std::span<const uint8_t> bytes, uint8_t value) {
    return std::ranges::all_of(bytes, [&](uint8_t byte) { return byte == value; });
  };
  EXPECT_TRUE(all(keys->secret(0), 0xaa));
  EXPECT_TRUE(all(keys->secret(1), 0x77));
  EXPECT_TRUE(all(keys->secret(2).first(16), 0xcc));
  EXPECT_TRUE(all(keys->secret(2).last(16), 0xff));
}

TEST_F(JobKeysTest, AnIdFollowsFromTheSecretAlone) {
  write(line_of('1') + line_of('2'));
  const auto old_first = read();
  write(line_of('2') + line_of('3') + line_of('1'));
  const auto new_first = read();
  ASSERT_TRUE(old_first && new_first);
  EXPECT_EQ(old_first->find(new_first->id(0)), 1);
  EXPECT_EQ(new_first->find(old_first->id(0)), 2);
  EXPECT_EQ(old_first->find(new_first->id(1)), std::nullopt);
  EXPECT_EQ(new_first->find(0), std::nullopt);
}

// Another program computes the same: hashlib.blake2b(b"SHIFT job key id" + secret,
// digest_size=32).digest()[:8], as a little-endian number.
TEST_F(JobKeysTest, IdsAreWhatTheyEverWere) {
  std::array<uint8_t, kJobKeySize> secret;
  for (size_t i = 0; i < secret.size(); i++) secret[i] = static_cast<uint8_t>(i);
  const auto keys = JobKeys::make(std::span(&secret, 1));
  ASSERT_NE(keys, nullptr);
  EXPECT_EQ(job_key_id_text(keys->id(0)), "b59fb760f63c4c21");
  EXPECT_EQ(job_key_id_text(1), "0000000000000001");
}

TEST_F(JobKeysTest, SecretsCanBeGiven) {
  std::array<std::array<uint8_t, kJobKeySize>, kJobKeysMax + 1> secrets{};
  for (size_t i = 0; i < secrets.size(); i++) secrets[i][5] = static_cast<uint8_t>(i);
  const auto keys = JobKeys::make(std::span(secrets).first(kJobKeysMax));
  ASSERT_NE(keys, nullptr);
  for (int i = 0; i < kJobKeysMax; i++) {
    EXPECT_TRUE(std::ranges::equal(keys->secret(i), secrets[static_cast<size_t>(i)]));
    EXPECT_EQ(keys->find(keys->id(i)), i);
  }
  EXPECT_EQ(JobKeys::make(secrets), nullptr);
  EXPECT_EQ(JobKeys::make({}), nullptr);
  secrets[1] = secrets[0];
  EXPECT_EQ(JobKeys::make(std::span(secrets).first(2)), nullptr);
}

TEST_F(JobKeysTest, OnlyAFileOfItsOwnIsRead) {
  expect_refused("there is no such file");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  expect_refused("not a regular file");
  fs::remove(path_);
  fs::create_directory(path_);
  expect_refused("not a regular file");
  fs::remove(path_);
  const std::string target = path_ + ".target";
  std::ofstream(target) << line_of('1');
  chmod(target.c_str(), 0600);
  fs::create_symlink(target, path_);
  expect_refused("a symbolic link");
  fs::remove(target);
  expect_refused("a symbolic link");
}

TEST_F(JobKeysTest, AnEmptyNameIsNoFile) {
  std::string problem;
  EXPECT_EQ(JobKeys::read("", problem), nullptr);
  EXPECT_TRUE(problem.starts_with("the key file \"\" cannot be used: its name is empty; "))
      << problem;
}

TEST_F(JobKeysTest, NobodyElseMayUseTheFile) {
  for (const mode_t mode : {0640, 0620, 0610, 0604, 0602, 0601, 0644, 0777}) {
    write(line_of('1'), mode);
    expect_refused("its mode is 0");
  }
  for (const mode_t mode : {0600, 0400, 0700}) {
    write(line_of('1'), mode);
    EXPECT_NE(read(), nullptr) << problem_;
  }
}

TEST_F(JobKeysTest, TheOwnerIsTheUserOrRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, which may give a file away";
  write(line_of('1'));
  EXPECT_NE(read(), nullptr) << problem_;
  ASSERT_EQ(chown(path_.c_str(), kOther, kOther), 0);
  expect_refused("belongs to user 65534");
  ASSERT_EQ(seteuid(kOther), 0);
  const bool is_taken = read() != nullptr;
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_TRUE(is_taken) << problem_;
}

TEST_F(JobKeysTest, ABadLineIsNamedButNotShown) {
  for (const std::string& bad :
       {std::string(63, 'd'), std::string(65, 'd'), std::string(66, 'd'), std::string(62, 'd'),
        std::string(63, 'd') + "g", "x" + std::string(63, 'd'), "0x" + std::string(62, 'd'),
        std::string(32, 'd') + " " + std::string(31, 'd'), std::string(64, '\0'),
        std::string(64, 'd') + " #", std::string("d")}) {
    write("# one\n" + line_of('1') + bad + "\n" + line_of('2'));
    expect_refused("line 3 is not a key of 64 hexadecimal digits");
    EXPECT_EQ(problem_.find("dd"), std::string::npos) << problem_;
  }
}

TEST_F(JobKeysTest, AFileHasOneToEightKeys) {
  for (const char* text : {"", "\n", "# nothing\n\n   \n"}) {
    write(text);
    expect_refused("no key in it");
  }
  std::string text;
  for (char digit = '1'; digit <= '8'; digit++) text += line_of(digit);
  write(text);
  ASSERT_NE(read(), nullptr) << problem_;
  EXPECT_EQ(read()->count(), kJobKeysMax);
  write(text + line_of('9'));
  expect_refused("line 9 is one key too many");
}

TEST_F(JobKeysTest, NoKeyStandsTwice) {
  write(line_of('a') + line_of('b') + line_of('A'));
  expect_refused("line 3 has the same key");
}

TEST_F(JobKeysTest, ALargeFileIsRefused) {
  std::string text = line_of('1');
  text += "#" + std::string(4096 - text.size() - 1, 'x');
  write(text);
  EXPECT_NE(read(), nullptr) << problem_;
  write(text + "x");
  expect_refused("larger than 4096 bytes");
}

TEST_F(JobKeysTest, AProblemIsOneLineWhateverThePath) {
  std::string problem;
  EXPECT_EQ(JobKeys::read("/nonexistent/a\nb\x7f", problem), nullptr);
  EXPECT_TRUE(problem.starts_with("the key file /nonexistent/a?b? cannot be used: ")) << problem;
}

// The line of flags that the kernel has for the memory at `address`.
std::string flags_at(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long first = 0, last = 0;
    if (sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      const auto at = reinterpret_cast<unsigned long>(address);
      is_it = first <= at && at < last;
    } else if (is_it && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return "";
}

TEST_F(JobKeysTest, NeitherADumpNorAForkChildHasTheSecrets) {
  if (getenv("SHIFT_EMULATOR") != nullptr) GTEST_SKIP() << "QEMU keeps no flags of dumps";
  write(line_of('1'));
  const auto keys = read();
  ASSERT_NE(keys, nullptr) << problem_;
  const std::string flags = flags_at(keys->secret(0).data());
  EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;
  EXPECT_NE(flags.find(" wf "), std::string::npos) << flags;
}

TEST_F(JobKeysTest, AForkChildHasNoKeys) {
  if (getenv("SHIFT_EMULATOR") != nullptr) GTEST_SKIP() << "QEMU wipes no pages at a fork";
  write(line_of('1'));
  const auto keys = read();
  ASSERT_NE(keys, nullptr) << problem_;
  const uint64_t id = keys->id(0);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_wiped = keys->count() == 0 && !keys->find(id) && keys->id(0) == 0 &&
                          std::ranges::all_of(keys->secret(0), [](uint8_t b) { return b == 0; });
    _exit(is_wiped ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(keys->count(), 1);
  EXPECT_EQ(keys->secret(0)[0], 0x11);
}

// No copy of the file's text stays in the pages that it was read into.
TEST_F(JobKeysTest, TheTextIsWiped) {
  const std::string digits = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";
  ASSERT_EQ(digits.size(), 64u);
  write(digits + "\n");
  const auto keys = read();
  ASSERT_NE(keys, nullptr) << problem_;
  const std::string_view pages(reinterpret_cast<const char*>(keys->secret(0).data()), 4096);
  EXPECT_EQ(pages.find(digits.substr(0, 16)), std::string_view::npos);
}

}  // namespace
}  // namespace shift

// The reader of one file, before files that are damaged, cut, changed meanwhile, or lies.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "../metrics.h"
#include "../process_file.h"
#include "../status.h"
#include "fake.h"
#include "scratch.h"

namespace shift::ctl {
namespace {

struct File : ::testing::Test {
  test::Scratch scratch;
  size_t places = 1u << 20;

  std::string read(const std::string& bytes, Process& process) {
    const UniqueFd fd = test::file_write(scratch.path(), ::geteuid(), "1-a.state", bytes);
    return process_read(fd.get(), places, process);
  }
  // A file with all kinds of records.
  test::Fake full() {
    auto fake = test::Fake::with(4711, {"mlx5_0", "mlx5_1"});
    fake.add_qp(0x10, 1);
    fake.add_qp(0x11, 0);
    fake.add_fault(0x10, 2, "later");
    fake.add_fault(0x10, 1, "earlier");
    return fake;
  }
};

TEST_F(File, whole_records_are_read) {
  Process process;
  ASSERT_EQ(read(full().bytes(), process), "");
  EXPECT_EQ(process.pid, 4711u);
  EXPECT_FALSE(process.is_live);
  EXPECT_EQ(process.damaged, 0u);
  ASSERT_EQ(process.groups.size(), 2u);
  ASSERT_EQ(process.devices.size(), 1u);
  EXPECT_EQ(process.device_of(process.groups[0]), &process.devices[0]);
  ASSERT_EQ(process.faults.size(), 2u);
  EXPECT_STREQ(process.faults[0].cause.data(), "earlier");
}

TEST_F(File, a_lock_shows_that_the_process_lives) {
  const UniqueFd fd = test::file_write(scratch.path(), ::geteuid(), "1-a.state", full().bytes());
  // Of another open file, and so not of this process: it stands for one that cannot be seen.
  struct flock lock {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(fd.get(), F_OFD_SETLK, &lock), 0);
  const UniqueFd other(
      ::open((scratch.path() + "/shift-" + std::to_string(::geteuid()) + "/1-a.state").c_str(),
             O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(lock_holder(other.get()), -1);
  Process process;
  EXPECT_EQ(process_read(other.get(), places, process), "");
  EXPECT_TRUE(process.is_live);
  EXPECT_EQ(process.pid, 4711u);
}

TEST_F(File, another_version_is_named_with_the_known_one) {
  auto fake = full();
  fake.process.layout_version = 7;
  Process process;
  EXPECT_EQ(read(fake.bytes(), process),
            "its layout has version 7, and this shiftctl reads version 1");
  fake.process.magic++;
  EXPECT_EQ(read(fake.bytes(), process), "it is no state file");
}

TEST_F(File, a_torn_record_is_left_out_and_the_others_are_read) {
  for (const size_t place : {state::kFaultsBegin, state::kDevicesBegin, state::kGroupsBegin + 1}) {
    std::string bytes = full().bytes();
    bytes[place * state::kPlaceSize + 100] ^= 1;
    Process process;
    ASSERT_EQ(read(bytes, process), "");
    EXPECT_EQ(process.damaged, 1u);
    EXPECT_EQ(process.groups.size() + process.devices.size() + process.faults.size(), 4u);
  }
  std::string bytes = full().bytes();
  bytes[200] ^= 1;
  Process process;
  EXPECT_EQ(read(bytes, process), "the sum of its first record is wrong");
}

TEST_F(File, numbers_out_of_range_are_damage) {
  const auto damaged = [&](auto change) {
    auto fake = full();
    change(fake);
    Process process;
    EXPECT_EQ(read(fake.bytes(), process), "");
    return process.damaged;
  };
  EXPECT_EQ(damaged([](auto&) {}), 0u);
  EXPECT_EQ(damaged([](auto& fake) { fake.devices[0].members = 9; }), 1u);
  EXPECT_EQ(damaged([](auto& fake) { fake.devices[0].members = 0; }), 1u);
  EXPECT_EQ(damaged([](auto& fake) { fake.groups[0].state = 11; }), 1u);
  EXPECT_EQ(damaged([](auto& fake) { fake.groups[0].member = 8; }), 1u);
  EXPECT_EQ(damaged([](auto& fake) { fake.groups[0].peer_member = 200; }), 1u);
  EXPECT_EQ(damaged([](auto& fake) { fake.groups[0].peer_members = 9; }), 1u);
  EXPECT_EQ(damaged([](auto& fake) { fake.groups[0].member = state::GroupRecord::kNoPath; }), 0u);
}

TEST_F(File, it_may_end_anywhere) {
  const std::string bytes = full().bytes();
  for (size_t size = 0; size <= bytes.size(); size += 101) {
    Process process;
    const std::string problem = read(bytes.substr(0, size), process);
    EXPECT_EQ(problem.empty(), size >= sizeof(state::ProcessRecord)) << size;
  }
}

TEST_F(File, its_size_is_bounded) {
  const UniqueFd fd = test::file_write(scratch.path(), ::geteuid(), "1-a.state", full().bytes());
  Process process;
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(state::kFileMax)), 0);
  EXPECT_EQ(process_read(fd.get(), places, process), "");
  ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(state::kFileMax) + 1), 0);
  EXPECT_EQ(process_read(fd.get(), places, process), "it is larger than a state file can be");
  // Damage uses up the bound, too.
  std::string damaged = full().bytes();
  damaged[state::kGroupsBegin * state::kPlaceSize + 100] ^= 1;
  places = 1000;
  EXPECT_EQ(read(damaged, process), "");
  EXPECT_EQ(places, 0u);
  EXPECT_NE(read(damaged, process).find("too many"), std::string::npos);
  places = 100;
  EXPECT_NE(read(full().bytes(), process).find("too many"), std::string::npos);
}

// Damage on purpose: texts without an end, every number at its limit, sums that are right.
TEST_F(File, a_liars_records_harm_nobody) {
  auto fake = full();
  std::memset(static_cast<void*>(&fake.process.counters), 0xff, sizeof fake.process.counters);
  fake.process.program.fill('\033');
  fake.process.settings.fill('=');
  std::memset(&fake.devices[0].names[32], 0xff, 32);
  for (auto& group : fake.groups) {
    group.problem.fill('\n');
    group.avoided = group.peer_avoided = group.ready_members = 0xff;
    group.since_ns = INT64_MIN;
  }
  for (auto& fault : fake.faults) {
    fault.cause.fill('\x9b');
    fault.detector = fault.refusal = fault.failed = 0xff;
    fault.time_ns = INT64_MAX;
  }
  Process process;
  ASSERT_EQ(read(fake.bytes(), process), "");
  process.is_live = true;
  Host host;
  host.processes = {process, process};
  const std::string text = status_text(host, true) + metrics_text(host);
  for (const char c : text) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
  EXPECT_EQ(text.find("\xff"), std::string::npos);
  EXPECT_NE(text.find("shift_replayed_requests_total 18446744073709551615"), std::string::npos);
}

TEST_F(File, garbage_is_refused_or_read_but_never_believed_beyond_its_bounds) {
  const char* const given = std::getenv("SHIFT_TEST_SEED");
  const unsigned seed =
      given != nullptr ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
  std::mt19937 random(seed);
  std::string bytes(1'000'000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  Process process;
  EXPECT_EQ(read(bytes, process), "it is no state file") << "seed " << seed;
  // The same behind a first record that is right.
  const std::string head = full().bytes().substr(0, state::kFaultsBegin * state::kPlaceSize);
  std::memcpy(bytes.data(), head.data(), head.size());
  EXPECT_EQ(read(bytes, process), "") << "seed " << seed;
  EXPECT_GT(process.damaged, 0u) << "seed " << seed;
  // Single bytes of a good file, changed at random.
  for (int i = 0; i < 200; i++) {
    std::string changed = full().bytes();
    const size_t at = random() % changed.size();
    changed[at] = static_cast<char>(changed[at] ^ (1 + random() % 255));
    Process one;
    read(changed, one);
    EXPECT_LE(one.groups.size(), 2u) << "seed " << seed;
    Host host;
    host.processes.push_back(one);
    host.processes[0].is_live = true;
    EXPECT_FALSE(status_text(host, true).empty());
  }
}

TEST_F(File, totals_are_read_in_the_same_way) {
  state::Counters counters;
  counters.replayed = 12;
  state::TotalsRecord totals;
  UniqueFd fd =
      test::file_write(scratch.path(), ::geteuid(), "totals", test::totals_bytes(counters));
  EXPECT_EQ(totals_read(fd.get(), totals), "");
  EXPECT_EQ(totals.counters.replayed, 12u);
  fd = test::file_write(scratch.path(), ::geteuid(), "totals", full().bytes());
  EXPECT_NE(totals_read(fd.get(), totals), "");
}

}  // namespace
}  // namespace shift::ctl

// The reader of the folders: whose files are believed, and what is said of the others.
#include "../host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "../drained_file.h"
#include "../events.h"
#include "../file_replace.h"
#include "fake.h"
#include "scratch.h"
#include "state/directory.h"

namespace shift::ctl {
namespace {

constexpr uid_t kOther = 65534;

struct Folders : ::testing::Test {
  test::Scratch scratch;
  Place place{scratch.path(), ::geteuid()};
  std::string folder = state::user_directory(scratch.path(), ::geteuid());

  void write(const std::string& name, uint32_t pid = 4711) {
    test::file_write(scratch.path(), ::geteuid(), name,
                     test::Fake::with(pid, {"mlx5_0", "mlx5_1"}).bytes());
  }
  // The line about a thing that was left out.
  std::string only_complaint() {
    const Host host = host_read(place);
    return host.unreadable.size() == 1 ? host.unreadable[0]
                                       : std::to_string(host.unreadable.size());
  }
  void expect_complaint(const std::string& text) {
    const std::string line = only_complaint();
    EXPECT_NE(line.find(text), std::string::npos) << line;
  }
};

TEST_F(Folders, nothing_there_is_no_problem) {
  const Host host = host_read(place);
  EXPECT_TRUE(host.processes.empty());
  EXPECT_TRUE(host.unreadable.empty());
  place.base += "/no-such";
  expect_complaint("No such file");
}

TEST_F(Folders, state_files_are_read_and_others_are_left_alone) {
  write("4711-a.state");
  write("4712-b.state", 4712);
  write("4713-c.ctl");
  write("other");
  const Host host = host_read(place);
  ASSERT_EQ(host.processes.size(), 2u);
  EXPECT_EQ(host.processes[0].name, "4711-a");
  EXPECT_EQ(host.processes[1].pid, 4712u);
  EXPECT_TRUE(host.unreadable.empty());
  ASSERT_EQ(host.users.size(), 1u);
  EXPECT_EQ(host.user_of(::geteuid()), host.users[0].name);
}

TEST_F(Folders, what_is_no_regular_file_is_named) {
  write("real");
  ASSERT_EQ(::symlink("real", (folder + "/1-link.state").c_str()), 0);
  expect_complaint("1-link.state: ");
  ASSERT_EQ(::unlink((folder + "/1-link.state").c_str()), 0);
  ASSERT_EQ(::mkfifo((folder + "/1-fifo.state").c_str(), 0600), 0);
  expect_complaint("1-fifo.state: it is no regular file");
  ASSERT_EQ(::unlink((folder + "/1-fifo.state").c_str()), 0);
  ASSERT_EQ(::mkdir((folder + "/1-folder.state").c_str(), 0700), 0);
  expect_complaint("1-folder.state: it is no regular file");
  ASSERT_EQ(::rmdir((folder + "/1-folder.state").c_str()), 0);
  ASSERT_EQ(::link((folder + "/real").c_str(), (folder + "/1-second.state").c_str()), 0);
  expect_complaint("it has a second name");
}

TEST_F(Folders, a_file_that_others_may_write_is_named) {
  write("1-a.state");
  ASSERT_EQ(::chmod((folder + "/1-a.state").c_str(), 0622), 0);
  expect_complaint("others may write to it");
}

TEST_F(Folders, damage_is_named_with_its_file) {
  auto fake = test::Fake::with(1, {"mlx5_0", "mlx5_1"});
  fake.process.layout_version = 2;
  test::file_write(scratch.path(), ::geteuid(), "1-a.state", fake.bytes());
  expect_complaint("1-a.state: its layout has version 2, and this shiftctl reads version 1");
  EXPECT_TRUE(host_read(place).processes.empty());
}

TEST_F(Folders, a_folder_that_others_may_enter_is_left_out) {
  write("1-a.state");
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  expect_complaint("others may enter it");
  EXPECT_TRUE(host_read(place).processes.empty());
}

TEST_F(Folders, root_believes_only_folders_of_their_users) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make folders of other users";
  write("1-a.state");
  test::file_write(scratch.path(), kOther, "2-b.state", test::Fake::with(2, {"mlx5_0"}).bytes());
  EXPECT_EQ(host_read(place).processes.size(), 2u);
  // A file of root in the other user's folder is not the user's word.
  ASSERT_EQ(::chown((scratch.path() + "/shift-65534/2-b.state").c_str(), 0, 0), 0);
  expect_complaint("2-b.state: it belongs to another user");
  ASSERT_EQ(::chown((scratch.path() + "/shift-65534").c_str(), 1, 1), 0);
  expect_complaint("shift-65534: it belongs to another user");
  // Names that are no users' do not count.
  ASSERT_EQ(::rename((scratch.path() + "/shift-65534").c_str(),
                     (scratch.path() + "/shift-065534").c_str()),
            0);
  EXPECT_TRUE(host_read(place).unreadable.empty());
  // Others see their own folder only.
  place.uid = 1;
  EXPECT_TRUE(host_read(place).processes.empty());
}

TEST_F(Folders, counts_of_ended_processes_come_from_the_totals) {
  state::Counters counters;
  counters.replayed = 5;
  test::file_write(scratch.path(), ::geteuid(), "totals", test::totals_bytes(counters));
  EXPECT_EQ(host_read(place).ended.replayed, 5u);
  ASSERT_EQ(::truncate((folder + "/totals").c_str(), 100), 0);
  expect_complaint("totals: it ends within its first record");
  EXPECT_EQ(host_read(place).ended.replayed, 0u);
}

TEST_F(Folders, totals_that_are_being_written_are_waited_for) {
  const UniqueFd fd =
      test::file_write(scratch.path(), ::geteuid(), "totals", test::totals_bytes({}));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(fd.get(), F_OFD_SETLK, &lock), 0);
  expect_complaint("totals: it changes all the time");
}

TEST_F(Folders, an_order_is_written_as_a_whole_and_taken_back) {
  bool was_there = true;
  EXPECT_EQ(drained_file_change(place, "mlx5_1", true, was_there), "");
  EXPECT_FALSE(was_there);
  EXPECT_EQ(drained_file_change(place, "mlx5_0", true, was_there), "");
  const bool is_root = ::geteuid() == 0;
  const std::string file = is_root ? scratch.path() + "/shift-drained" : folder + "/drained";
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, is_root ? 0644u : 0600u);
  EXPECT_EQ(status.st_size, 14);
  std::string problem;
  EXPECT_EQ(state::drained_read(place.base, place.uid, problem),
            (std::set<std::string>{"mlx5_0", "mlx5_1"}));
  EXPECT_EQ(drained_file_change(place, "mlx5_0", true, was_there), "");
  EXPECT_TRUE(was_there);
  EXPECT_EQ(drained_file_change(place, "mlx5_0", false, was_there), "");
  EXPECT_EQ(drained_file_change(place, "mlx5_1", false, was_there), "");
  EXPECT_EQ(::stat(file.c_str(), &status), -1);
  EXPECT_EQ(drained_file_change(place, "mlx5_1", false, was_there), "");
  EXPECT_FALSE(was_there);
}

TEST_F(Folders, an_order_has_an_end) {
  bool was_there = false;
  std::string problem;
  for (int i = 0; problem.empty() && i < 1000; i++)
    problem =
        drained_file_change(place, "a_rather_long_name_" + std::to_string(i), true, was_there);
  EXPECT_EQ(problem, "too many NICs are drained already");
}

TEST_F(Folders, names_that_no_device_can_have_are_refused) {
  for (const char* good : {"mlx5_0", "a", "rxe-eth0.1"}) EXPECT_TRUE(is_device_name(good)) << good;
  for (const char* bad : {"", "a b", "../x", "a\n", "ä", "1234567890123456789012345678901x"})
    EXPECT_FALSE(is_device_name(bad)) << bad;
}

TEST_F(Folders, a_file_is_replaced_or_stays) {
  const std::string file = scratch.path() + "/a.prom";
  EXPECT_EQ(file_replace(AT_FDCWD, file, "one\n", 0644), "");
  EXPECT_EQ(file_replace(AT_FDCWD, file, "two\n", 0644), "");
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
  EXPECT_NE(file_replace(AT_FDCWD, scratch.path() + "/no/such", "x", 0644), "");
  ASSERT_EQ(::mkdir((scratch.path() + "/folder").c_str(), 0700), 0);
  EXPECT_NE(file_replace(AT_FDCWD, scratch.path() + "/folder", "x", 0644), "");
  const auto files = std::distance(std::filesystem::directory_iterator(scratch.path()), {});
  EXPECT_EQ(files, 2) << "a new file was left beside the old one";
}

TEST_F(Folders, each_event_is_told_once_in_order_of_time) {
  auto a = test::Fake::with(1, {"mlx5_0", "mlx5_1"});
  auto b = test::Fake::with(2, {"mlx5_0", "mlx5_1"});
  a.add_fault(1, 300, "third");
  b.add_fault(2, 200, "second");
  b.add_fault(2, 200, "second");  // an equal record is another event
  test::file_write(scratch.path(), ::geteuid(), "1-a.state", a.bytes());
  test::file_write(scratch.path(), ::geteuid(), "2-b.state", b.bytes());
  Events events;
  Host host = host_read(place);
  const auto first = events.news(host);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].fault->time_ns, 200);
  EXPECT_EQ(first[2].process->pid, 1u);
  a.add_fault(1, 400, "fourth");
  test::file_write(scratch.path(), ::geteuid(), "1-a.state", a.bytes());
  host = host_read(place);
  ASSERT_EQ(events.news(host).size(), 1u);
  EXPECT_TRUE(events.news(host).empty());
}

}  // namespace
}  // namespace shift::ctl

// Tests several processes that share one rendezvous port: connections are passed on, the port gets
// a new owner, and processes of other users are refused.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "net/test/raw_sharer.h"

namespace shift::net::test {
namespace {

wire::QpName asker() {
  return qp(ip(1), 1);
}

// Another process that serves `ip_be` and owns one QP there, until it is ended.
class OtherProcess {
 public:
  OtherProcess(uint32_t ip_be, const wire::QpName& name, uid_t user = 0) {
    // The port is made before fork(), because it must be the parent's, and the addresses that
    // test_port() uses depend on the process id.
    const uint16_t port = test_port();
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (user != 0 && setuid(user) != 0) _exit(1);
      Reactor reactor;
      Notes notes;
      notes.add_qp(name);
      if (!reactor.start()) _exit(1);
      std::unique_ptr<PeerNet> net;
      reactor.call_and_wait([&] {
        net = std::make_unique<PeerNet>(reactor, notes, PeerNetOptions{port});
        net->add_address(ip_be);
      });
      if (write(ready[1], "r", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1) << "the other process did not start";
    close(ready[0]);
  }
  ~OtherProcess() { end(); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

// While an object of this class lives, the process can open no descriptor.
class NoDescriptors {
 public:
  NoDescriptors() {
    const int any = open("/dev/null", O_RDONLY | O_CLOEXEC);
    EXPECT_GE(any, 0);
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    struct rlimit low = before_;
    low.rlim_cur = static_cast<rlim_t>(any) + 1;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    for (int fd = any; fd >= 0; fd = fcntl(any, F_DUPFD_CLOEXEC, 0)) taken_.emplace_back(fd);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  void give_one() { taken_.pop_back(); }

 private:
  struct rlimit before_ = {};
  std::vector<UniqueFd> taken_;
};

// The processor time that the loop's thread uses during `span`.
std::chrono::nanoseconds processor_time(Node& node, std::chrono::milliseconds span) {
  clockid_t clock{};
  std::promise<void> over;
  const auto used = [&] {
    struct timespec t = {};
    clock_gettime(clock, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  node.run([&] {
    EXPECT_EQ(pthread_getcpuclockid(pthread_self(), &clock), 0);
    node.reactor.timer_start(span, [&] { over.set_value(); });
  });
  const auto before = used();
  over.get_future().wait();
  return used() - before;
}

TEST(PortShare, OwnerPassesConnectionsToTheProcessThatOwnsTheQp) {
  const wire::QpName first = qp(ip(2), 100), second = qp(ip(2), 200);
  Node owner, sharer, asking;
  owner.notes.add_qp(first);
  sharer.notes.add_qp(second);
  owner.serve(ip(2));
  sharer.serve(ip(2));
  const Found one = asking.find(asker(), first), two = asking.find(asker(), second);
  ASSERT_EQ(one.error, FindError::kNone);
  ASSERT_EQ(two.error, FindError::kNone);
  EXPECT_EQ(real(one.channel).peer(), owner.net->instance());
  EXPECT_EQ(real(two.channel).peer(), sharer.net->instance());
  asking.send(two.channel, numbered(7));
  EXPECT_TRUE(sharer.notes.wait_message(numbered(7)));
  EXPECT_EQ(owner.notes.messages().size(), 0u);
}

// An owner that lacks a processor for a second refuses nobody for good.
TEST(PortShare, ThreeRefusalsInARowAreToldOf) {
  UniqueFd local = local_listen(local_name(ip(2), test_port()));
  ASSERT_TRUE(local);
  const auto comes = [&] {
    struct pollfd ready = {local.get(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 30000), 1) << "no sharer came";
    return local_accept(local.get());
  };
  const auto is_told = [] {
    const std::string told = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    return told.find("is served by a process that shares it with others only") != std::string::npos;
  };
  testing::internal::CaptureStderr();
  Node sharer;
  sharer.serve(ip(2));
  comes().reset();
  comes().reset();
  UniqueFd third = comes();  // it comes when the second refusal is over
  EXPECT_FALSE(is_told());
  third.reset();
  // Another test may have drawn this line in the same second, in which it comes only once.
  bool has_told = false;
  for (int further = 0; further < 12 && !has_told; further++) {
    comes().reset();
    has_told = is_told();
  }
  EXPECT_TRUE(has_told);
  testing::internal::GetCapturedStderr();
}

TEST(PortShare, FurtherPathsReachTheirProcessThroughTheOwnerToo) {
  const wire::QpName name = qp(ip(2), 200);
  Node owner, sharer, asking;
  sharer.notes.add_qp(name);
  owner.serve(ip(2));
  owner.serve(ip(12));
  sharer.serve(ip(2));
  sharer.serve(ip(12));
  const Found found = asking.find(asker(), name);
  ASSERT_EQ(found.error, FindError::kNone);
  asking.run([&] { found.channel->keep_connection(ip(11), ip(12)); });
  ASSERT_TRUE(asking.notes.wait([&] { return asking.notes.ups() == 2; }));
  EXPECT_TRUE(sharer.notes.wait([&] { return sharer.notes.ups() == 2; }));
  EXPECT_EQ(asking.send(found.channel, numbered(7)), 2u);
  EXPECT_TRUE(sharer.notes.wait_message(numbered(7)));
}

TEST(PortShare, QpThatNoProcessOwnsIsDeniedByAll) {
  Node owner, sharer, asking;
  owner.serve(ip(2));
  sharer.serve(ip(2));
  EXPECT_EQ(asking.find(asker(), qp(ip(2), 300), 300ms).error, FindError::kNoSuchQp);
}

TEST(PortShare, ASharerThatEndsUnaskedLeavesTheQuestionToTheOthers) {
  const wire::QpName name = qp(ip(2), 200);
  Node owner, asking;
  owner.serve(ip(2));
  RawSharer first(ip(2)), second(ip(2));
  owner.run([] {});
  owner.run([] {});
  auto found = asking.find_start(asker(), name);
  LocalPacket question = second.receive();
  ASSERT_EQ(question.kind, LocalKind::kAsk);
  ASSERT_EQ(first.receive().kind, LocalKind::kAsk);
  first.close();
  owner.run([] {});
  owner.run([] {});
  question.kind = LocalKind::kAnswer;
  question.yes = true;
  second.send(question);
  UniqueFd passed;
  EXPECT_EQ(second.receive(passed).kind, LocalKind::kPass);
  EXPECT_TRUE(passed);
}

// Nobody is left that could answer: the asking end is told so.
TEST(PortShare, TheLastSharersEndAnswersTheQuestion) {
  Node owner;
  owner.serve(ip(2));
  RawSharer only(ip(2));
  owner.run([] {});
  owner.run([] {});
  UniqueFd asking = tcp_connect(ip(1), ip(2), test_port());
  struct pollfd ready = {asking.get(), POLLOUT, 0};
  ASSERT_EQ(poll(&ready, 1, 30000), 1);
  wire::Hello question;
  question.want = qp(ip(2), 200);
  question.from = asker();
  question.instance.raw.fill(8);
  std::vector<uint8_t> hello;
  ASSERT_TRUE(wire::encode(question, hello));
  ASSERT_TRUE(send_whole(asking.get(), hello));
  ASSERT_EQ(only.receive().kind, LocalKind::kAsk);
  only.close();
  ready.events = POLLIN;
  ASSERT_EQ(poll(&ready, 1, 30000), 1);
  std::vector<uint8_t> answer(512);
  const ssize_t n = recv(asking.get(), answer.data(), answer.size(), 0);
  ASSERT_GT(n, 0);
  wire::Message message;
  ASSERT_TRUE(wire::decode({answer.data(), static_cast<size_t>(n)}, message));
  EXPECT_EQ(std::get<wire::HelloReply>(message).status, wire::HelloStatus::kNoSuchQp);
}

TEST(LocalPacket, OnlyWhatIsSentIsUnderstood) {
  std::vector<uint8_t> good;
  ASSERT_TRUE(local_encode({LocalKind::kAnswer, 7, true, {}}, good));
  LocalPacket packet;
  ASSERT_TRUE(local_decode(good, packet));
  EXPECT_EQ(packet.kind, LocalKind::kAnswer);
  EXPECT_EQ(packet.id, 7u);
  EXPECT_TRUE(packet.yes);
  const auto is_taken = [&good](size_t at, uint8_t value) {
    auto bytes = good;
    bytes[at] = value;
    LocalPacket unused;
    return local_decode(bytes, unused);
  };
  for (const uint8_t kind : {1, 2, 3, 4, 5, 6}) EXPECT_TRUE(is_taken(0, kind));
  for (const uint8_t kind : {0, 7}) EXPECT_FALSE(is_taken(0, kind));
  for (const uint8_t yes : {0, 1}) EXPECT_TRUE(is_taken(1, yes));
  EXPECT_FALSE(is_taken(1, 2));
  for (size_t size = 0; size < good.size(); size++)
    EXPECT_FALSE(local_decode({good.data(), size}, packet)) << size;
  std::vector<uint8_t> other(good.begin(), good.begin() + 6);
  ASSERT_TRUE(wire::encode(numbered(1), other));
  EXPECT_FALSE(local_decode(other, packet)) << "it brings no Hello";
}

TEST(LocalSocket, EachPortHasAPlaceOfItsOwn) {
  const UniqueFd one = local_listen(local_name(ip(2), 9473)),
                 two = local_listen(local_name(ip(2), 9472)),
                 three = local_listen(local_name(ip(3), 9473));
  EXPECT_TRUE(one && two && three);
  EXPECT_FALSE(local_listen(local_name(ip(2), 9473))) << "it is taken";
}

TEST(LocalSocket, AnyDescriptorCanBePassed) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd one(ends[0]), two(ends[1]);
  ASSERT_NE(fcntl(STDIN_FILENO, F_GETFD), -1) << "the standard input is closed";
  const uint8_t byte = 1;
  ASSERT_TRUE(local_send(one.get(), {&byte, 1}, STDIN_FILENO));
  uint8_t buffer[8];
  UniqueFd passed;
  ASSERT_EQ(local_receive(two.get(), buffer, passed), 1);
  EXPECT_TRUE(passed);
  passed.reset();
  ASSERT_TRUE(local_send(one.get(), {&byte, 1}));
  ASSERT_EQ(local_receive(two.get(), buffer, passed), 1);
  EXPECT_FALSE(passed);
}

TEST(PortShare, MemberTakesOverAndOldConnectionsLiveOn) {
  const wire::QpName first = qp(ip(2), 100), second = qp(ip(2), 200), third = qp(ip(2), 300);
  auto owner = std::make_unique<Node>();
  Node member_a, member_b, asking, later;
  owner->notes.add_qp(first);
  member_a.notes.add_qp(second);
  member_b.notes.add_qp(third);
  owner->serve(ip(2));
  member_a.serve(ip(2));
  member_b.serve(ip(2));
  const Found found = asking.find(asker(), second);
  ASSERT_EQ(found.error, FindError::kNone);
  owner.reset();
  // Both members that are left are found, whichever of them owns the port now.
  EXPECT_EQ(later.find(asker(), second).error, FindError::kNone);
  EXPECT_EQ(later.find(asker(), third).error, FindError::kNone);
  EXPECT_EQ(asking.send(found.channel, numbered(1)), 1u);
  EXPECT_TRUE(member_a.notes.wait_message(numbered(1)));
  EXPECT_EQ(asking.notes.ups(), 1) << "the connection was never lost";
}

TEST(PortShare, AnOwnerWithoutDescriptorsTakesMembersInLaterAndDoesNotSpin) {
  const wire::QpName first = qp(ip(7), 100), second = qp(ip(7), 200);
  Node owner, sharer, asking;
  owner.notes.add_qp(first);
  sharer.notes.add_qp(second);
  owner.serve(ip(7));
  ASSERT_EQ(asking.find(asker(), first).error, FindError::kNone);
  UniqueFd waiting;
  {
    NoDescriptors none;
    none.give_one();
    waiting = local_connect(local_name(ip(7), test_port()));
    ASSERT_TRUE(waiting);
    EXPECT_LT(processor_time(owner, 300ms), 50ms) << "a loop that spins would have used it all";
  }
  sharer.serve(ip(7));
  EXPECT_EQ(asking.find(asker(), second).error, FindError::kNone);
}

TEST(PortShare, KilledOwnerIsReplaced) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no threads in forked children";
#endif
  const wire::QpName first = qp(ip(3), 100), second = qp(ip(3), 200);
  Node asking;
  OtherProcess owner(ip(3), first);
  ASSERT_EQ(asking.find(asker(), first).error, FindError::kNone);
  OtherProcess sharer(ip(3), second);
  ASSERT_EQ(asking.find(asker(), second).error, FindError::kNone);
  owner.end();
  Node later;
  EXPECT_EQ(later.find(asker(), second).error, FindError::kNone);
}

TEST(PortShare, ForkedChildDoesNotHoldThePort) {
  const wire::QpName name = qp(ip(4), 1);
  const uint32_t address = ip(4);
  pid_t child;
  {
    Node owner, asking;
    owner.notes.add_qp(name);
    owner.serve(address);
    ASSERT_EQ(asking.find(asker(), name).error, FindError::kNone);
    child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) pause();
    }
  }
  Node next, asking;
  next.notes.add_qp(name);
  next.serve(address);
  EXPECT_EQ(asking.find(asker(), name).error, FindError::kNone);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(PortShare, OtherUsersAreNotTrusted) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer allows no threads in forked children";
#endif
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const wire::QpName theirs = qp(ip(5), 1), ours = qp(ip(5), 2);
  Node owner, asking;
  owner.notes.add_qp(ours);
  owner.serve(ip(5));
  ASSERT_EQ(asking.find(asker(), ours).error, FindError::kNone);
  OtherProcess stranger(ip(5), theirs, 65534);
  EXPECT_EQ(asking.find(asker(), theirs, 300ms).error, FindError::kNoSuchQp);
  EXPECT_EQ(asking.find(asker(), ours).error, FindError::kNone);
}

TEST(PortShare, ServesAnAddressOnlyWhileItIsOurs) {
  const wire::QpName name = qp(ip(6), 1);
  Node serving, asking;
  serving.notes.add_qp(name);
  serving.serve(ip(6));
  serving.serve(ip(6));
  ASSERT_EQ(asking.find(asker(), name).error, FindError::kNone);
  serving.run([&] { serving.net->remove_address(ip(6)); });
  serving.run([] {});
  Node other;
  EXPECT_EQ(other.find(asker(), name).error, FindError::kNoShift);
}

}  // namespace
}  // namespace shift::net::test

// Tests the Reactor: hand-over of tasks, descriptors that vanish inside callbacks, timers, fork.
#include "net/reactor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <future>
#include <stdexcept>
#include <thread>

namespace shift::net {
namespace {

using namespace std::chrono_literals;

class ReactorTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(reactor_.start()); }

  struct Pair {
    Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0); }
    ~Pair() {
      close(fd[0]);
      close(fd[1]);
    }
    int fd[2];
  };

  Reactor reactor_;
};

TEST_F(ReactorTest, TasksRunOnTheThreadInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 1000; i++)
    ASSERT_TRUE(reactor_.call_soon([&, i] {
      EXPECT_TRUE(reactor_.in_thread());
      order.push_back(i);
    }));
  ASSERT_TRUE(reactor_.call_and_wait([] {}));
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_FALSE(reactor_.in_thread());
}

TEST_F(ReactorTest, TasksOfTasksRunWithoutAnyOtherWakeUp) {
  std::promise<void> done;
  reactor_.call_soon(
      [&] { reactor_.call_soon([&] { reactor_.call_soon([&] { done.set_value(); }); }); });
  EXPECT_EQ(done.get_future().wait_for(10s), std::future_status::ready);
}

TEST_F(ReactorTest, ThrowingTaskDoesNotEndTheThread) {
  reactor_.call_soon([] { throw std::runtime_error("planted"); });
  EXPECT_TRUE(reactor_.call_and_wait([] {}));
}

// The waiting thread's stack has noexcept frames: a cancellation that unwinds them would end the
// process.
TEST_F(ReactorTest, AWaitingThreadIsNotCancelledBeforeItsTaskIsDone) {
  std::promise<void> begun, go_on;
  bool waited = false;
  std::thread waiting([&] {
    waited = reactor_.call_and_wait([&] {
      begun.set_value();
      go_on.get_future().wait();
    });
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);  // here, a cancellation could act
  });
  begun.get_future().wait();
  std::this_thread::sleep_for(20ms);  // the thread most likely waits by now
  pthread_cancel(waiting.native_handle());
  go_on.set_value();
  waiting.join();
  EXPECT_TRUE(waited);
}

TEST_F(ReactorTest, CallbackMayRemoveItselfAndOthersOfTheSameBatch) {
  Pair a, b;
  int calls = 0;
  reactor_.call_and_wait([&] {
    // Both descriptors become ready before the loop looks. The first callback removes both, so the
    // second callback must not run.
    auto callback = [&](uint32_t) {
      calls++;
      reactor_.remove_fd(a.fd[0]);
      reactor_.remove_fd(b.fd[0]);
    };
    ASSERT_TRUE(reactor_.add_fd(a.fd[0], EPOLLIN, callback));
    ASSERT_TRUE(reactor_.add_fd(b.fd[0], EPOLLIN, callback));
    ASSERT_EQ(write(a.fd[1], "x", 1), 1);
    ASSERT_EQ(write(b.fd[1], "x", 1), 1);
  });
  reactor_.call_and_wait([] {});
  reactor_.call_and_wait([] {});
  EXPECT_EQ(calls, 1);
}

TEST_F(ReactorTest, ModifyChangesWhatIsWaitedFor) {
  Pair a;
  std::promise<uint32_t> seen;
  reactor_.call_and_wait([&] {
    ASSERT_TRUE(reactor_.add_fd(a.fd[0], EPOLLIN, [&](uint32_t events) {
      seen.set_value(events);
      reactor_.remove_fd(a.fd[0]);
    }));
    ASSERT_TRUE(reactor_.modify_fd(a.fd[0], EPOLLOUT));
  });
  auto future = seen.get_future();
  ASSERT_EQ(future.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(future.get(), static_cast<uint32_t>(EPOLLOUT));
  reactor_.call_and_wait([&] { EXPECT_FALSE(reactor_.modify_fd(a.fd[0], EPOLLIN)); });
}

TEST_F(ReactorTest, TimersFireInOrderAndCancelledOnesDoNot) {
  std::vector<int> fired;
  std::promise<void> done;
  reactor_.call_and_wait([&] {
    const auto now = Reactor::Clock::now();
    reactor_.timer_start(now + 3ms, [&] { done.set_value(); });
    const Reactor::TimerId victim = reactor_.timer_start(now + 2ms, [&] { fired.push_back(99); });
    reactor_.timer_start(now + 1ms, [&, victim] {
      fired.push_back(1);
      reactor_.timer_cancel(victim);
    });
    reactor_.timer_start(now - 1h, [&] { fired.push_back(0); });
    reactor_.timer_cancel(0);
    reactor_.timer_cancel(12345);
  });
  ASSERT_EQ(done.get_future().wait_for(10s), std::future_status::ready);
  EXPECT_EQ(fired, (std::vector<int>{0, 1}));
}

TEST_F(ReactorTest, EarlierTimerOvertakesAnArmedOne) {
  std::promise<void> done;
  reactor_.call_and_wait([&] { reactor_.timer_start(1h, [] {}); });
  reactor_.call_and_wait([&] { reactor_.timer_start(1ms, [&] { done.set_value(); }); });
  EXPECT_EQ(done.get_future().wait_for(10s), std::future_status::ready);
}

TEST_F(ReactorTest, SignalsAreBlockedInTheThread) {
  sigset_t mask;
  reactor_.call_and_wait([&] { pthread_sigmask(SIG_SETMASK, nullptr, &mask); });
  for (int s : {SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD, SIGPIPE})
    EXPECT_EQ(sigismember(&mask, s), 1) << s;
  EXPECT_EQ(sigismember(&mask, SIGSEGV), 0);
}

TEST_F(ReactorTest, IdleThreadUsesNoCpu) {
  clockid_t clock;
  reactor_.call_and_wait([&] {
    reactor_.timer_start(1h, [] {});
    ASSERT_EQ(pthread_getcpuclockid(pthread_self(), &clock), 0);
  });
  auto cpu = [&] {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
  };
  // The timer measures 200 ms, in which nothing else happens.
  std::promise<void> done;
  reactor_.call_and_wait([&] { reactor_.timer_start(200ms, [&] { done.set_value(); }); });
  const long before = cpu();
  done.get_future().wait();
  EXPECT_LT(cpu() - before, 5000000) << "a loop that spins would have used 200 ms";
}

TEST_F(ReactorTest, AfterStopNothingIsAccepted) {
  reactor_.stop();
  EXPECT_FALSE(reactor_.call_soon([] {}));
  EXPECT_FALSE(reactor_.call_and_wait([] {}));
  reactor_.stop();
}

TEST_F(ReactorTest, WaitEndsWhenTheTaskIsDropped) {
  Reactor other;
  std::promise<void> blocked, release;
  ASSERT_TRUE(other.start());
  other.call_soon([&] {
    blocked.set_value();
    release.get_future().wait();
  });
  blocked.get_future().wait();
  auto waiting = std::async(std::launch::async, [&] { return other.call_and_wait([] {}); });
  auto stopping = std::async(std::launch::async, [&] { other.stop(); });
  release.set_value();
  stopping.wait();
  EXPECT_EQ(waiting.wait_for(10s), std::future_status::ready);
}

TEST_F(ReactorTest, ForkChildForgetsAndDoesNotHang) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  // The address sanitizer's own lock for threads may be taken at the time of the fork, and stays
  // so.
  GTEST_SKIP() << "the sanitizers allow no threads in forked children";
#endif
  // Thanks to this thread, the queue's lock is most likely taken at the time of the fork.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) reactor_.call_soon([] {});
  });
  for (int i = 0; i < 20; i++) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(10);
      bool ok =
          !reactor_.call_soon([] {}) && !reactor_.call_and_wait([] {}) && !reactor_.in_thread();
      reactor_.stop();
      Reactor fresh;
      ok = ok && fresh.start() && fresh.call_and_wait([] {});
      _exit(ok ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << i;
  }
  stop = true;
  busy.join();
  EXPECT_TRUE(reactor_.call_and_wait([] {}));
}

}  // namespace
}  // namespace shift::net

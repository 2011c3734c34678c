// Tests that the layer's waits go on after signals, as read(2) does.
#include "util/restarts.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace shift {
namespace {

// Installs a signal handler until the end of the scope.
class Handler {
 public:
  Handler(int number, int flags) : number_(number) {
    struct sigaction action {};
    action.sa_handler = [](int) { ran++; };
    action.sa_flags = flags;
    ran = 0;
    sigaction(number, &action, &before_);
  }
  ~Handler() { sigaction(number_, &before_, nullptr); }

  static inline std::atomic<int> ran{0};

 private:
  int number_;
  struct sigaction before_ {};
};

// Sends a signal to a thread in wait_readable() until the thread has come back, or five times, and
// then writes the byte that the thread waits for. Returns the errno that ended the wait, or 0 when
// the thread waited until the byte came.
int wait_under(int signal_number) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  std::atomic<bool> back{false};
  int error = 0;
  std::thread waiter([&] {
    pollfd fd{ends[0], POLLIN, 0};
    while (fd.revents == 0 && error == 0) {
      if (!wait_readable(&fd, 1, -1)) error = errno;
    }
    back = true;
  });
  // The thread takes each signal before the next is sent. A signal that it takes before it waits
  // ends no wait.
  for (int i = 0; i < 5 && !back; i++) {
    const int before = Handler::ran;
    pthread_kill(waiter.native_handle(), signal_number);
    while (Handler::ran == before && !back) usleep(100);
    usleep(10'000);
  }
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  waiter.join();
  close(ends[0]);
  close(ends[1]);
  return error;
}

TEST(Restarts, AHandlerThatAsksForItLetsTheWaitGoOn) {
  const Handler handler(SIGUSR1, SA_RESTART);
  EXPECT_EQ(wait_under(SIGUSR1), 0);
}

TEST(Restarts, AHandlerThatDoesNotEndsTheWait) {
  const Handler handler(SIGUSR1, 0);
  EXPECT_EQ(wait_under(SIGUSR1), EINTR);
}

TEST(Restarts, CrashReportersAndBlockedSignalsEndNoWait) {
  const Handler crash(SIGSEGV, 0);
  EXPECT_TRUE(wait_restarts());
  const Handler handler(SIGUSR2, 0);
  EXPECT_FALSE(wait_restarts());
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  EXPECT_TRUE(wait_restarts());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Restarts, ErrnoIsKept) {
  errno = EAGAIN;
  (void)wait_restarts();
  EXPECT_EQ(errno, EAGAIN);
}

// The process goes on waiting even though it has a handler, for another signal. The SIGCHLD of the
// stop goes to the parent.
TEST(Restarts, AStoppedProcessGoesOnWaiting) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Handler handler(SIGUSR1, 0);
    pollfd fd{ends[0], POLLIN, 0};
    _exit(wait_readable(&fd, 1, 10'000) && fd.revents != 0 ? 0 : 1);
  }
  int status = 0;
  for (int i = 0; i < 3; i++) {
    usleep(20'000);  // the child may wait now; if not, the stop proves nothing
    ASSERT_EQ(kill(child, SIGSTOP), 0);
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    ASSERT_EQ(kill(child, SIGCONT), 0);
  }
  usleep(20'000);
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace shift

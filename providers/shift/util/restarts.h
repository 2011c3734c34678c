// What the layer's own waits do when a signal has ended them.
#pragma once

#include <poll.h>
#include <signal.h>

#include <cerrno>

namespace shift {

// The stock library waits for events in read(2), which the kernel takes up again after a handler
// that was installed with SA_RESTART. poll(2) it never does, so who waits in that asks here: true,
// wait on; false, the program may have a handler that is to end its call with EINTR. Which handler
// ran nobody tells: one without the flag, for a signal that this thread takes, is enough. (A
// process that was stopped and goes on has run none. poll(2) stays asleep then, unlike
// epoll_wait(2).) Keeps errno.
inline bool wait_restarts() noexcept {
  const int saved = errno;
  bool restarts = true;
  sigset_t blocked;
  sigemptyset(&blocked);
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (int number = 1; number < NSIG && restarts; number++) {
    switch (number) {
      // Raised by what a thread does, and so not while it waits. Crash reporters have handlers.
      case SIGSEGV:
      case SIGBUS:
      case SIGFPE:
      case SIGILL:
      case SIGTRAP:
      case SIGABRT:
      case SIGSYS:
        continue;
      default:
        break;
    }
    struct sigaction action {};
    // The C library hides those of its own, which restart.
    if (sigismember(&blocked, number) == 1 || sigaction(number, nullptr, &action) != 0) continue;
    const bool has_handler = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    restarts = !has_handler || (action.sa_flags & SA_RESTART) != 0;
  }
  errno = saved;
  return restarts;
}

// poll(2) on behalf of a program that would wait in read(2). False: its call ends with errno. True:
// look again, whether a descriptor is ready, or the time is over, or neither: how much time is left
// is for the caller to say, each time.
inline bool wait_readable(pollfd* fds, nfds_t count, int patience_ms) {
  return poll(fds, count, patience_ms) >= 0 || (errno == EINTR && wait_restarts());
}

}  // namespace shift

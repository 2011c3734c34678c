// Decides whether the layer's own waits go on when a signal has ended them.
#pragma once

#include <poll.h>
#include <signal.h>

#include <cerrno>

namespace shift {

// The stock library waits for events in read(2), which the kernel restarts after a handler that was
// installed with SA_RESTART. The kernel never restarts poll(2), so a thread that waits in poll(2)
// asks here. True: it must wait on. False: the program may have a handler that is to end its call
// with EINTR. There is no way to learn which handler ran, so the result is false as soon as one
// signal that this thread does not block has a handler without the flag. (When a process was
// stopped and continued, no handler ran; poll(2) then goes on by itself, unlike epoll_wait(2).)
// Keeps errno.
inline bool wait_restarts() noexcept {
  const int saved = errno;
  bool restarts = true;
  sigset_t blocked;
  sigemptyset(&blocked);
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (int number = 1; number < NSIG && restarts; number++) {
    switch (number) {
      // A thread raises these signals by what it does, and so not while it waits. Crash reporters
      // have handlers for them.
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
    // sigaction() fails for the signals that the C library itself uses; their handlers restart.
    if (sigismember(&blocked, number) == 1 || sigaction(number, nullptr, &action) != 0) continue;
    const bool has_handler = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    restarts = !has_handler || (action.sa_flags & SA_RESTART) != 0;
  }
  errno = saved;
  return restarts;
}

// Calls poll(2) on behalf of a program that would wait in read(2). False: the program's call ends
// with errno. True: a descriptor is ready, or the time is over, or neither, so the caller looks
// again. The caller computes anew, for each call, how much time is left.
inline bool wait_readable(pollfd* fds, nfds_t count, int patience_ms) {
  return poll(fds, count, patience_ms) >= 0 || (errno == EINTR && wait_restarts());
}

}  // namespace shift

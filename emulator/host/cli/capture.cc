// `cxemu capture`: switches a capture on, waits, and makes the file.
#include "fabric/capture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "host/cli/capture_file.h"
#include "host/cli/commands.h"
#include "host/cli/target.h"

namespace cxemu {
namespace {

using namespace std::chrono_literals;

// Enough for a process that was stopped while it wrote.
constexpr auto kPatience = 2s;

// The file that all processes append to, next to the wanted file; it is removed at the end.
class Spool {
 public:
  explicit Spool(const std::string& out)
      : path_(std::filesystem::absolute(out).string() + ".spool") {
    const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) throw std::runtime_error(path_ + ": " + strerror(errno));
    close(fd);
  }
  ~Spool() { unlink(path_.c_str()); }
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

// The capture runs while this object exists; the constructor throws if it cannot be started.
class Running {
 public:
  Running(const Fabric& fabric, const std::string& spool, const std::vector<FabricNic*>& nics)
      : fabric_(fabric) {
    std::string error;
    if (!capture_begin(fabric, spool, nics, &error)) throw std::runtime_error(error);
  }
  ~Running() { capture_end(fabric_, kPatience); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const Fabric& fabric_;
};

pid_t command_start(const std::vector<std::string>& command, const sigset_t& signals) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error(std::string("fork: ") + strerror(errno));
  if (pid > 0) return pid;
  sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  fprintf(stderr, "cxemu: %s: %s\n", arguments[0], strerror(error));
  _exit(error == ENOENT ? 127 : 126);
}

// Waits for the command's end; returns its exit status as shells report it.
int command_wait(pid_t pid, const sigset_t& signals) {
  for (;;) {
    int number = 0, status = 0;
    sigwait(&signals, &number);
    if (number != SIGCHLD) kill(pid, number);
    if (waitpid(pid, &status, WNOHANG) == pid)
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}

void signal_wait(const sigset_t& signals) {
  int number = 0;
  do {
    sigwait(&signals, &number);
  } while (number == SIGCHLD);
}

}  // namespace

int capture_run(const CaptureOptions& options) {
  const Fabric fabric = fabric_open(options.fabric);
  std::vector<FabricNic*> nics;
  for (const std::string& name : options.nics) nics.push_back(&target_find(fabric, name));

  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const Spool spool(options.out);
  int status = 0;
  {
    const Running running(fabric, spool.path(), nics);
    fprintf(stderr, "cxemu: capturing\n");
    if (options.command.empty())
      signal_wait(signals);
    else
      status = command_wait(command_start(options.command, signals), signals);
  }
  const uint64_t packets = capture_file_write(fabric, spool.path(), options.out);
  fprintf(stderr, "cxemu: %llu packets in %s\n", static_cast<unsigned long long>(packets),
          options.out.c_str());
  if (const uint64_t lost = fabric->capture_lost.load(); lost > 0)
    throw std::runtime_error(std::to_string(lost) + " packets could not be written");
  return status;
}

}  // namespace cxemu

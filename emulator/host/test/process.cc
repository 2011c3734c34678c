// Child processes of tests.
#include "host/test/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

namespace cxemu {

using Clock = std::chrono::steady_clock;

Process::Process(const std::vector<std::string>& command) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) abort();
  std::vector<char*> arguments;
  for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(out[1], 2);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  in_ = in[1];
  out_ = out[0];
  signal(SIGPIPE, SIG_IGN);
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(in_);
  close(out_);
}

void Process::send_line(const std::string& line) {
  const std::string text = line + "\n";
  if (write(in_, text.data(), text.size()) < 0) output_ += "(input closed)\n";
}

void Process::signal_send(int number) {
  if (pid_ > 0) kill(pid_, number);
}

bool Process::read_some(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd wait{out_, POLLIN, 0};
  if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) <= 0) return false;
  char text[4096];
  const ssize_t length = read(out_, text, sizeof text);
  if (length <= 0) return false;
  output_.append(text, static_cast<size_t>(length));
  return true;
}

std::string Process::line_wait(const std::string& text, std::chrono::milliseconds patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    for (size_t end; (end = output_.find('\n', seen_)) != std::string::npos;) {
      const std::string line = output_.substr(seen_, end - seen_);
      seen_ = end + 1;
      if (line.find(text) != std::string::npos) return line;
    }
    if (!read_some(deadline)) return {};
  }
}

int Process::end_wait() {
  const auto deadline = Clock::now() + kPatience;
  while (read_some(deadline)) {
  }
  if (Clock::now() >= deadline) return -1;
  int status;
  if (waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run(const std::vector<std::string>& command, std::string* output) {
  Process process(command);
  const int status = process.end_wait();
  if (output != nullptr) *output = process.output();
  return status;
}

bool wait_until(const std::function<bool()>& condition) {
  const auto deadline = Clock::now() + kPatience;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    poll(nullptr, 0, 2);  // the processes that we wait for need the cores
  }
  return true;
}

int port_free() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  bind(fd, reinterpret_cast<sockaddr*>(&address), length);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  close(fd);
  return ntohs(address.sin_port);
}

bool port_listening(int port) {
  char wanted[16];
  snprintf(wanted, sizeof wanted, ":%04X", port);
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(path);
    for (std::string line; std::getline(table, line);) {
      std::istringstream fields(line);
      std::string number, local, remote, state;
      fields >> number >> local >> remote >> state;
      if (state == "0A" && local.ends_with(wanted)) return true;
    }
  }
  return false;
}

}  // namespace cxemu

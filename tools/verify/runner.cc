#include "runner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trouble.h"

namespace shift::verify {
namespace {

using Clock = std::chrono::steady_clock;

Outcome guarded(const std::function<Outcome()>& work) try {
  return work();
} catch (const std::exception& trouble) {
  return failure(trouble.what());
}

void write_all(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

void exec_words(const std::vector<std::string>& words, const std::vector<std::string>& env) {
  for (const std::string& one : env) {
    const size_t equals = one.find('=');
    if (equals == std::string::npos) {
      unsetenv(one.c_str());
    } else {
      setenv(one.substr(0, equals).c_str(), one.c_str() + equals + 1, 1);
    }
  }
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
}

void keep_open(int fd) {
  if (fd >= 0) fcntl(fd, F_SETFD, 0);
}

}  // namespace

void die_with_parent() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

Job::Job(const std::function<Outcome()>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe", errno);
  pid_ = fork();
  if (pid_ < 0) fail("fork", errno);
  if (pid_ == 0) {
    setpgid(0, 0);
    die_with_parent();
    close(ends[0]);
    write_all(ends[1], outcome_to_json(guarded(work))
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    // Objects of verbs are not destroyed one by one: the kernel does that.
    _exit(0);
  }
  close(ends[1]);
  fd_ = ends[0];
}

Job::~Job() {
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  close(fd_);
  // One that hangs in the kernel is not waited for.
  for (int tries = 0; tries < 100 && waitpid(pid_, nullptr, WNOHANG) == 0; tries++) usleep(10'000);
}

Outcome Job::result(std::chrono::seconds patience, const Progress& progress) {
  const auto start = Clock::now();
  std::string bytes;
  for (;;) {
    pollfd one{fd_, POLLIN, 0};
    if (::poll(&one, 1, 100) == 1) {
      char some[4096];
      const ssize_t n = read(fd_, some, sizeof some);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      bytes.append(some, static_cast<size_t>(n));
      continue;
    }
    const std::chrono::duration<double> passed = Clock::now() - start;
    if (passed > patience)
      return failure(
          text("no result within %lld s: a command to the NIC does not return, or this host is "
               "very busy",
               static_cast<long long>(patience.count())));
    if (progress) progress(passed.count());
  }
  if (!bytes.empty()) return outcome_from_json(nlohmann::json::parse(bytes, nullptr, false));
  int status = 0;
  waitpid(pid_, &status, 0);
  return failure(WIFSIGNALED(status) ? text("the check crashed: %s", strsignal(WTERMSIG(status)))
                                     : "the check ended without a result");
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kSkipped:
      return "skipped";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailure:
      break;
  }
  return "failure";
}

nlohmann::json outcome_to_json(const Outcome& outcome) {
  nlohmann::json figures = nlohmann::json::object();
  for (const auto& [name, value] : outcome.figures) figures[name] = value;
  return {{"verdict", verdict_name(outcome.verdict)},
          {"text", outcome.text},
          {"means", outcome.means},
          {"advice", outcome.advice},
          {"figures", std::move(figures)}};
}

Outcome outcome_from_json(const nlohmann::json& json) try {
  Outcome outcome;
  const auto verdict = json.at("verdict").get<std::string>();
  for (const Verdict one :
       {Verdict::kOk, Verdict::kSkipped, Verdict::kWarning, Verdict::kFailure}) {
    if (verdict == verdict_name(one)) outcome.verdict = one;
  }
  for (const auto& [name, line] :
       {std::pair{"text", &outcome.text}, {"means", &outcome.means}, {"advice", &outcome.advice}}) {
    for (const char letter : json.at(name).get<std::string>().substr(0, 1000))
      *line += static_cast<unsigned char>(letter) < ' ' ? '?' : letter;
  }
  for (const auto& [name, value] : json.at("figures").items())
    outcome.figures.emplace_back(name, value.get<double>());
  return outcome;
} catch (const nlohmann::json::exception&) {
  return failure("the check gives no result that can be read");
}

std::string program_run(const std::vector<std::string>& words, const std::vector<std::string>& env,
                        int fd, const std::string& errors, int& status) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe", errno);
  const pid_t pid = fork();
  if (pid < 0) fail("fork", errno);
  if (pid == 0) {
    die_with_parent();
    dup2(ends[1], STDOUT_FILENO);
    const int log = open(errors.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log >= 0) dup2(log, STDERR_FILENO);
    keep_open(fd);
    exec_words(words, env);
    _exit(127);
  }
  close(ends[1]);
  std::string said;
  char some[4096];
  for (ssize_t n; (n = read(ends[0], some, sizeof some)) != 0;) {
    if (n < 0 && errno != EINTR) break;
    if (n > 0 && said.size() < 65536) said.append(some, static_cast<size_t>(n));
  }
  close(ends[0]);
  waitpid(pid, &status, 0);
  return said;
}

void program_become(const std::vector<std::string>& words, const std::vector<std::string>& env,
                    int fd) {
  keep_open(fd);
  exec_words(words, env);
  _exit(127);
}

std::string own_program() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

std::string shift_run_program() {
  const auto beside = std::filesystem::path(own_program()).parent_path() / "shift-run";
  std::error_code error;
  return std::filesystem::exists(beside, error) ? beside.string() : "shift-run";
}

}  // namespace shift::verify

// Test traffic under the layer, through a fault and back: the default path's QP is put into ERR
// behind the layer's back, or the link is taken down.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "internal.h"
#include "nics.h"
#include "runner.h"
#include "topics.h"
#include "trouble.h"
#include "wire.h"

namespace shift::verify {
namespace {

std::vector<std::string> traffic_words(const Subject& subject, const ChildFiles& files, int fd,
                                       const std::string& fault, const std::string& down,
                                       const std::string& up) {
  return {shift_run_program(), "--",         own_program(), "internal", "traffic", subject.nic,
          std::to_string(fd),  files.events, fault,         down,       up};
}

Outcome ask(const Subject& subject, Wire& wire, const std::string& fault, const std::string& down,
            const std::string& up) {
  if (subject.nics.size() < 2) return skipped("there is no second NIC to move to");
  const ChildFiles files;
  int status = 0;
  const std::string said =
      program_run(traffic_words(subject, files, wire.fd(), fault, down, up),
                  layer_environment(subject, files), wire.fd(), files.log, status);
  const auto json = nlohmann::json::parse(said, nullptr, false);
  if (!json.is_object()) return failure("the traffic program ends early: " + files.last_line());
  Outcome out = outcome_from_json(json);
  if (out.verdict == Verdict::kFailure) {
    const std::string last = files.last_line();
    if (last != "it says nothing") out.text += " [" + last + "]";
  }
  return out;
}

// Brings a link up again when this process is over, however it ends: it may be killed, with the
// traffic program, while the link is down.
class Guardian {
 public:
  explicit Guardian(const std::string& up) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe", errno);
    pid_ = fork();
    if (pid_ < 0) fail("fork", errno);
    if (pid_ == 0) {
      setsid();  // neither ^C nor the end of this job reaches it
      dup2(ends[0], STDIN_FILENO);
      close_range(STDERR_FILENO + 1, ~0u, 0);
      char unused;
      while (read(STDIN_FILENO, &unused, 1) < 0 && errno == EINTR) {
      }
      _exit(std::system((up + " >&2").c_str()) == 0 ? 0 : 1);
    }
    close(ends[0]);
    fd_ = ends[1];
  }
  ~Guardian() {
    close(fd_);
    waitpid(pid_, nullptr, 0);
  }
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

}  // namespace

Outcome ask_failover(const Subject& subject, Wire& wire) {
  return ask(subject, wire, "error", "", "");
}

Outcome ask_link_down(const Subject& subject, Wire& wire) {
  const Wishes& wishes = subject.wishes;
  if (!wishes.breaks_link) return skipped("the option --link asks for it");
  // The commands find the NIC in their environment.
  setenv("NIC", subject.nic.c_str(), 1);
  std::string down = wishes.link_down, up = wishes.link_up;
  if (down.empty()) {
    const auto devices = network_devices(subject.nic);
    if (devices.size() != 1 || devices.front() == "lo")
      return skipped(subject.nic + " is not on one network device; give --link-down and --link-up");
    if (geteuid() != 0) return skipped("only root may take a link down");
    down = "ip link set dev " + devices.front() + " down";
    up = "ip link set dev " + devices.front() + " up";
  }
  const Guardian guardian(up);
  return ask(subject, wire, "link", down, up);
}

void answer_failover(const Subject& subject, Wire& wire) {
  if (subject.nics.size() < 2) return;
  // The folder is left to the process that runs the program, and is removed when that has ended.
  const ChildFiles files;
  int status = 0;
  (void)program_run(traffic_words(subject, files, wire.fd(), "none", "", ""),
                    layer_environment(subject, files), wire.fd(), files.log, status);
}

}  // namespace shift::verify

// `cxemu calibrate`: how much all NICs of this machine can carry together. ib_write_bw is the load,
// the NICs' own counters are the measure.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "fabric/paths.h"
#include "host/cli/calibration.h"
#include "host/cli/commands.h"
#include "host/cli/cpu_time.h"
#include "host/cli/target.h"

namespace cxemu {
namespace {

using nlohmann::json;

constexpr int kLargeBytes = 65536, kSmallBytes = 8;
constexpr uint64_t kWarmPackets = 1000;
constexpr uint64_t kPatienceNs = 20'000'000'000;

void pause_ns(uint64_t ns) {
  const timespec time = {static_cast<time_t>(ns / 1'000'000'000),
                         static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&time, nullptr);
}

// Programs that run until this object ends.
class Children {
 public:
  ~Children() {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }
  void start(const std::vector<std::string>& command) {
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("cannot start a process");
    if (pid == 0) {
      const int null = open("/dev/null", O_RDWR);
      for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
      std::vector<char*> arguments;
      for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      execv("/proc/self/exe", arguments.data());
      _exit(127);
    }
    pids_.push_back(pid);
  }
  // Whether all of them still run.
  bool alive() {
    for (const pid_t pid : pids_)
      if (waitpid(pid, nullptr, WNOHANG) == pid) {
        std::erase(pids_, pid);
        return false;
      }
    return true;
  }

 private:
  std::vector<pid_t> pids_;
};

int port_free() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  const bool ok = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&own), length) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  if (fd >= 0) close(fd);
  if (!ok) throw std::runtime_error("no free TCP port");
  return ntohs(own.sin_port);
}

bool port_listening(int port) {
  char wanted[16];
  snprintf(wanted, sizeof wanted, ":%04X", port);
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      if (state == "0A" && local.ends_with(wanted)) return true;
    }
  }
  return false;
}

double cpu_percent(const CpuTime& from, const CpuTime& to) {
  return to.all > from.all ? 100 * (to.busy - from.busy) / (to.all - from.all) : 0;
}

struct Measured {
  double bytes_per_second, packets_per_second, cpu_percent;
};

class Calibration {
 public:
  Calibration(int nics, double seconds)
      : name_("calibrate-" + std::to_string(getpid())), seconds_(seconds) {
    unsetenv("CXEMU_HOST");
    for (const char* host : {"a", "b"}) {
      Children child;
      child.start({"cxemu", "exec", "--fabric", name_, "--host", host, "--nics",
                   std::to_string(nics), "--", "true"});
      wait([&] { return !child.alive(); }, "the fabric cannot be made");
    }
    fabric_ = fabric_open(name_);
  }
  ~Calibration() {
    fabric_ = {};
    try {
      clean_run(name_, false);
    } catch (const std::exception& error) {
      fprintf(stderr, "cxemu: %s\n", error.what());
    }
  }
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  // With so many NICs of each host busy with messages of this size.
  Measured measure(int nics, int message) {
    Children children;
    for (int nic = 0; nic < nics; ++nic) {
      const int port = port_free();
      children.start(traffic("a", nic, port, message, false));
      wait([&] { return port_listening(port) || !children.alive(); }, "ib_write_bw does not start");
      const uint64_t before = fabric_.nic(0, nic)->rx_packets.load();
      children.start(traffic("b", nic, port, message, true));
      wait(
          [&] {
            if (!children.alive())
              throw std::runtime_error("ib_write_bw ends; is the package perftest installed?");
            return fabric_.nic(0, nic)->rx_packets.load() > before + kWarmPackets;
          },
          "ib_write_bw does not move anything");
    }
    const Counts first = counts(nics);
    pause_ns(static_cast<uint64_t>(seconds_ * 1e9));
    const Counts last = counts(nics);
    const double span = static_cast<double>(last.time_ns - first.time_ns) / 1e9;
    return {static_cast<double>(last.bytes - first.bytes) / span,
            static_cast<double>(last.packets - first.packets) / span,
            cpu_percent(first.cpu, last.cpu)};
  }

 private:
  struct Counts {
    uint64_t time_ns = 0, bytes = 0, packets = 0;
    CpuTime cpu;
  };

  // Time and counters belong together, so they are read again when the reader lost its core
  // meanwhile.
  Counts counts(int nics) const {
    constexpr int kTries = 100;
    constexpr uint64_t kTogetherNs = 200'000;
    Counts all;
    for (int i = 0; i < kTries; ++i) {
      const uint64_t begin_ns = monotonic_ns();
      all.bytes = all.packets = 0;
      for (int nic = 0; nic < nics; ++nic) {
        all.bytes += fabric_.nic(0, nic)->rx_bytes.load();
        all.packets += fabric_.nic(0, nic)->rx_packets.load();
      }
      all.time_ns = monotonic_ns();
      if (all.time_ns - begin_ns < kTogetherNs) break;
    }
    all.cpu = cpu_time();
    return all;
  }
  static void wait(const std::function<bool()>& done, const char* failure) {
    const uint64_t begin = monotonic_ns();
    while (!done()) {
      if (monotonic_ns() - begin > kPatienceNs) throw std::runtime_error(failure);
      pause_ns(2'000'000);
    }
  }
  std::vector<std::string> traffic(const char* host, int nic, int port, int message,
                                   bool client) const {
    std::vector<std::string> command = {"cxemu",
                                        "exec",
                                        "--fabric",
                                        name_,
                                        "--host",
                                        host,
                                        "--",
                                        "ib_write_bw",
                                        "-d",
                                        "mlx5_" + std::to_string(nic),
                                        "-x",
                                        "3",
                                        "-F",
                                        "-s",
                                        std::to_string(message),
                                        "-p",
                                        std::to_string(port),
                                        "-D",
                                        "600"};
    if (client) command.push_back(address_text(fabric_.nic(0, nic)->ipv4_be));
    return command;
  }

  const std::string name_;
  const double seconds_;
  Fabric fabric_;
};

double others_percent() {
  const CpuTime before = cpu_time();
  pause_ns(300'000'000);
  return cpu_percent(before, cpu_time());
}

void print(const json& shown) {
  printf("%d processor(s), %.0f %% busy with other things\n", shown["processors"].get<int>(),
         shown["others_cpu_percent"].get<double>());
  for (const json& run : shown["runs"])
    printf("%d NIC(s)  %12.0f bytes/s (%s)  %10.0f packets/s\n", run["nics"].get<int>(),
           run["bytes_per_second"].get<double>(),
           rate_text(static_cast<uint64_t>(run["bytes_per_second"].get<double>())).c_str(),
           run["packets_per_second"].get<double>());
  printf("the sum of rates that tests rely on should be below %s\n",
         rate_text(static_cast<uint64_t>(shown["bytes_per_second"].get<double>() / 4)).c_str());
}

}  // namespace

int calibrate_run(int nics, double seconds, bool as_json) {
  json shown = {{"processors", sysconf(_SC_NPROCESSORS_ONLN)},
                {"others_cpu_percent", others_percent()},
                {"runs", json::array()}};
  double bytes = 0, packets = 0;
  {
    Calibration calibration(nics, seconds);
    for (int busy = 1; busy <= nics; busy *= 2) {
      const Measured large = calibration.measure(busy, kLargeBytes);
      const Measured small = calibration.measure(busy, kSmallBytes);
      shown["runs"].push_back({{"nics", busy},
                               {"bytes_per_second", large.bytes_per_second},
                               {"packets_per_second", small.packets_per_second},
                               {"cpu_percent", std::max(large.cpu_percent, small.cpu_percent)}});
      bytes = std::max(bytes, large.bytes_per_second);
      packets = std::max(packets, small.packets_per_second);
    }
  }
  shown["bytes_per_second"] = bytes;
  shown["packets_per_second"] = packets;
  const double one = shown["runs"][0]["bytes_per_second"].get<double>();
  calibration_write(static_cast<uint64_t>(one));
  if (as_json)
    printf("%s\n", shown.dump(2).c_str());
  else
    print(shown);
  return 0;
}

}  // namespace cxemu

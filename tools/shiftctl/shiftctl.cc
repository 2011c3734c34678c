// shiftctl shows what the layer does in the processes of this host, and hands them orders.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "drain.h"
#include "drained_file.h"
#include "events.h"
#include "explain.h"
#include "file_replace.h"
#include "host.h"
#include "json.h"
#include "metrics.h"
#include "move.h"
#include "problems.h"
#include "settings.h"
#include "status.h"
#include "target.h"
#include "text.h"
#include "util/config.h"

namespace {

using shift::ctl::Host;
using shift::ctl::host_read;
using shift::ctl::Place;
using std::chrono::milliseconds;

constexpr int kExitUsage = 2;
constexpr double kSecondsMax = 86400;
constexpr milliseconds kFollowPause{500};

struct Options {
  std::string state_dir, target, output, watch;
  bool is_json = false, is_all = false, follows = false, is_forced = false, is_list = false,
       is_home = false;
  double drain_timeout = 60, move_timeout = 10;
};

int fail(const std::string& problem, int status = shift::ctl::kExitProblem) {
  fprintf(stderr, "shiftctl: %s\n", problem.c_str());
  return status;
}

void print(const std::string& text) {
  fputs(text.c_str(), stdout);
  fflush(stdout);
}

milliseconds in_ms(double seconds) {
  return milliseconds(static_cast<int64_t>(seconds * 1000));
}

int warn_of(const Host& host) {
  for (const auto& line : host.unreadable) fail("cannot be read: " + line);
  return host.unreadable.empty() ? 0 : shift::ctl::kExitProblem;
}

int status_run(const Place& place, const Options& options) {
  for (;;) {
    const Host host = host_read(place);
    const bool watches = !options.watch.empty();
    if (watches && !options.is_json && isatty(STDOUT_FILENO) != 0) print("\033[H\033[2J");
    print(options.is_json ? shift::ctl::status_json(host, watches)
                          : shift::ctl::status_text(host, options.is_all));
    if (!watches) return host.unreadable.empty() ? 0 : shift::ctl::kExitProblem;
    if (!options.is_json && isatty(STDOUT_FILENO) == 0) print("\n");
    if (ferror(stdout) != 0) return shift::ctl::kExitProblem;
    std::this_thread::sleep_for(in_ms(std::stod(options.watch)));
  }
}

int events_run(const Place& place, const Options& options) {
  shift::ctl::Events events;
  for (;;) {
    const Host host = host_read(place);
    for (const auto& event : events.news(host))
      print(options.is_json ? shift::ctl::event_json(event)
                            : shift::ctl::fault_text(*event.process, *event.fault) + "\n");
    if (!options.follows) return warn_of(host);
    if (ferror(stdout) != 0) return shift::ctl::kExitProblem;
    std::this_thread::sleep_for(kFollowPause);
  }
}

int explain_run(const Place& place, const Options& options) {
  const Host host = host_read(place);
  const std::string text = shift::ctl::explain_text(host, options.target);
  const int status = warn_of(host);
  if (text.empty())
    return fail("there is no QP, process or NIC " + shift::ctl::text_safe(options.target));
  print(text);
  return status;
}

// What a process would get that started now from here.
std::vector<shift::ctl::Setting> settings_now() {
  std::vector<shift::ctl::Setting> settings;
  const auto env = [](const char* key) -> const char* { return std::getenv(key); };
  for (const auto& one : shift::config_settings(env, shift::kConfigFile))
    settings.push_back({one.name, one.value, one.source});
  return settings;
}

int settings_print(const std::vector<shift::ctl::Setting>& settings, bool is_json) {
  print(is_json ? shift::ctl::settings_json(settings) : shift::ctl::settings_text(settings));
  return 0;
}

int config_run(const Place& place, const Options& options) {
  if (options.target.empty()) return settings_print(settings_now(), options.is_json);
  uint32_t pid = 0;
  if (!shift::ctl::number_read(options.target, 10, pid))
    return fail(shift::ctl::text_safe(options.target) + " is no PID", kExitUsage);
  const Host host = host_read(place);
  const auto found = shift::ctl::processes_of(host, pid);
  if (found.empty()) {
    warn_of(host);
    return fail("there is no process " + options.target + " with SHIFT");
  }
  // Of several that have had this number, the last one in the folder's order is as good as any.
  return settings_print(shift::ctl::settings_of(*found.back()), options.is_json);
}

int health_run(const Place& place, const Options& options) {
  const Host host = host_read(place);
  const auto problems = shift::ctl::problems_of(host);
  int status = 0;
  for (const auto& problem : problems)
    status = std::max(status, problem.severity == shift::ctl::Severity::kFailed ? 2 : 1);
  if (options.is_json) {
    print(shift::ctl::health_json(problems, status));
    return status;
  }
  for (const auto& problem : problems)
    print((problem.severity == shift::ctl::Severity::kFailed ? "failed: " : "degraded: ") +
          problem.text + "\n");
  if (problems.empty()) print("ok: nothing is wrong\n");
  return status;
}

int drain_run(const Place& place, const Options& options) {
  if (options.target.empty() || options.is_list) return shift::ctl::drained_list(place);
  return shift::ctl::drain_run(place,
                               {options.target, in_ms(options.drain_timeout), options.is_forced});
}

int metrics_run(const Place& place, const Options& options) {
  const std::string text = shift::ctl::metrics_text(host_read(place));
  if (options.output.empty()) {
    print(text);
    return ferror(stdout) == 0 ? 0 : shift::ctl::kExitProblem;
  }
  const std::string problem = shift::ctl::file_replace(AT_FDCWD, options.output, text, 0644);
  return problem.empty() ? 0 : fail(problem);
}

std::string device_check(const std::string& name) {
  return shift::ctl::is_device_name(name) ? "" : name + " is no name of a NIC";
}

// The command line. Each command remembers what runs it.
class CommandLine {
 public:
  CommandLine()
      : app_("Shows what SHIFT does in the processes of this host, and hands them orders",
             "shiftctl") {
    app_.footer("See shiftctl(1).");
    app_.set_version_flag("--version", "shiftctl " SHIFT_VERSION);
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.add_option("--state-dir", options_.state_dir,
                    "The folder in which processes tell of themselves")
        ->type_name("DIR");
    looks_add();
    changes_add();
  }

  int run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? 0 : kExitUsage;
    }
    const Place place = Place::of(options_.state_dir);
    for (const auto& [command, run] : commands_)
      if (*command) return run(place, options_);
    return kExitUsage;
  }

 private:
  using Run = int (*)(const Place&, const Options&);

  CLI::App* add(const char* name, const char* what, Run runs) {
    CLI::App* command = app_.add_subcommand(name, what);
    commands_.emplace_back(command, runs);
    return command;
  }
  void json_add(CLI::App* command) {
    command->add_flag("--json", options_.is_json, "Print JSON, for programs");
  }

  void looks_add() {
    CLI::App* status = add(
        "status", "Show processes, NICs, what is not protected, and the last faults", status_run);
    json_add(status);
    status->add_flag("--watch{2}", options_.watch, "Show it again each 2 s, or --watch=SECONDS")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.1, kSecondsMax));
    status->add_flag("-v,--all", options_.is_all, "Show each QP, too");
    CLI::App* events = add("events", "Show the changes of path of all processes", events_run);
    json_add(events);
    events->add_flag("--follow", options_.follows, "Go on with those to come");
    add("explain", "Say whether it is protected, what is missing, and what helps", explain_run)
        ->add_option("TARGET", options_.target, "A QP (0x1f, 4711:0x1f), a PID, or a NIC")
        ->required();
    CLI::App* config = add("config", "Show settings, and where they come from", config_run);
    json_add(config);
    config->add_option("PID", options_.target, "The process; without it, one that would start now");
    json_add(
        add("health", "Print a line for each problem; the exit status is 0, 1 or 2", health_run));
    add("metrics", "Print counts and states for Prometheus", metrics_run)
        ->add_option("--output", options_.output, "Replace this file instead of printing")
        ->type_name("FILE");
  }

  void changes_add() {
    const auto nic_add = [&](CLI::App* command) {
      return command->add_option("NIC", options_.target, "The name of the RDMA device")
          ->check(device_check);
    };
    const auto timeout_add = [](CLI::App* command, double& seconds) {
      command->add_option("--timeout", seconds, "Wait no longer than this")
          ->type_name("SECONDS")
          ->capture_default_str()
          ->check(CLI::Range(0.0, kSecondsMax));
    };
    CLI::App* drain =
        add("drain", "Have processes leave a NIC, and wait until they have", drain_run);
    nic_add(drain);
    timeout_add(drain, options_.drain_timeout);
    drain->add_flag("--force", options_.is_forced, "Do so even if QPs cannot leave it");
    drain->add_flag("--list", options_.is_list, "List the NICs that are drained");
    nic_add(add("undrain", "Let processes use the NIC again",
                [](const Place& place, const Options& options) {
                  return shift::ctl::undrain_run(place, options.target);
                }))
        ->required();
    CLI::App* move =
        add("move", "Have one QP leave its NIC", [](const Place& place, const Options& options) {
          return shift::ctl::move_run(place, options.target, options.is_home,
                                      in_ms(options.move_timeout));
        });
    move->add_option("QP", options_.target, "0x1f, or 4711:0x1f for that of a process")->required();
    move->add_flag("--home", options_.is_home, "It need not keep away from a NIC any more");
    timeout_add(move, options_.move_timeout);
  }

  CLI::App app_;
  Options options_;
  std::vector<std::pair<CLI::App*, Run>> commands_;
};

}  // namespace

int main(int argc, char** argv) {
  return CommandLine().run(argc, argv);
}

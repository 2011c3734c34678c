// shift-verify looks whether this host's NICs, driver, kernel and network do what the layer counts
// on.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "check.h"
#include "internal.h"
#include "nics.h"
#include "report.h"
#include "session.h"
#include "trouble.h"

namespace {

using namespace shift::verify;  // NOLINT(google-build-using-namespace): the program is its only
                                // user

constexpr int kExitUsage = 2, kExitNothing = 3;

struct Options {
  std::string server;
  std::vector<std::string> devices, only, without;
  Wishes wishes;
  uint16_t port = kServerPort;
  int timeout = 0;  // in seconds; 0: as the checks say
  bool is_server = false, is_json = false, is_list = false;
};

// Runs all checks that are asked for, one after the other.
class Run {
 public:
  Run(const Options& options, const Subject& host, Session& session)
      : options_(options), host_(host), session_(session), report_(options.is_json) {}

  int all() {
    for (Check& check : checks_) {
      if (!is_asked_for(check)) continue;
      if (options_.timeout > 0) check.seconds = std::min(check.seconds, options_.timeout);
      one(check);
    }
    return report_.end();
  }

 private:
  bool is_asked_for(const Check& check) const {
    const auto names = [&](const std::vector<std::string>& list) {
      return std::ranges::find(list, check.name) != list.end() ||
             std::ranges::find(list, check.topic) != list.end();
    };
    return (options_.only.empty() || names(options_.only)) && !names(options_.without);
  }

  void one(const Check& check) {
    switch (check.scope) {
      case Scope::kHost:
        here(check, "");
        return there(check, "");
      case Scope::kNic:
        for (const std::string& nic : host_.nics) here(check, nic);
        for (const std::string& nic : session_.peer_nics()) there(check, nic);
        return;
      case Scope::kHosts:
        return both(check, host_.nics.front(), session_.peer_nics().front(), true);
      case Scope::kRail:
      case Scope::kPath:
        break;
    }
    const auto& others = session_.peer_nics();
    for (size_t i = 0; i < host_.nics.size(); i++) {
      for (size_t j = 0; j < others.size(); j++) {
        if (i == j || check.scope == Scope::kPath) both(check, host_.nics[i], others[j], i == j);
      }
    }
  }

  void here(const Check& check, const std::string& nic) {
    Subject subject = host_;
    subject.nic = nic;
    const std::string where = place(host_.is_one_host ? "" : "here ", nic);
    run(check, where, {.check = &check, .where = where, .host = "here", .nic = nic},
        [&](const auto& progress) { return run_here(check, subject, progress); });
  }

  void there(const Check& check, const std::string& nic) {
    if (host_.is_one_host) return;
    const std::string where = place("there ", nic);
    run(check, where, {.check = &check, .where = where, .host = "there", .nic = nic},
        [&](const auto& progress) { return session_.run_there(check, nic, progress); });
  }

  void both(const Check& check, const std::string& nic, const std::string& peer_nic,
            bool is_straight) {
    Subject subject = host_;
    subject.nic = nic;
    subject.peer_nic = peer_nic;
    subject.is_straight = is_straight;
    const std::string where = check.scope == Scope::kHosts
                                  ? (host_.is_one_host ? "host" : "here > there")
                                  : nic + " > " + peer_nic;
    run(check, where,
        {.check = &check, .where = where, .host = "both", .nic = nic, .peer_nic = peer_nic},
        [&](const auto& progress) { return session_.run_both(check, subject, progress); });
  }

  static std::string place(const std::string& host, const std::string& nic) {
    return host + (nic.empty() ? "host" : nic);
  }

  template <typename Work>
  void run(const Check& check, const std::string& where, Result result, Work work) {
    report_.begin(check, where);
    const auto start = std::chrono::steady_clock::now();
    try {
      result.outcome = work([&](double seconds) { report_.progress(check, where, seconds); });
    } catch (const Trouble& trouble) {
      result.outcome = failure(trouble.what());
    }
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report_.add(std::move(result));
  }

  const Options& options_;
  const Subject& host_;
  Session& session_;
  std::vector<Check> checks_ = checks();
  Report report_;
};

void options_add(CLI::App& app, Options& options) {
  app.footer("See shift-verify(1).");
  app.set_version_flag("--version", "shift-verify " SHIFT_VERSION);
  app.add_option("HOST", options.server,
                 "Where shift-verify --server runs; without it, this host alone");
  app.add_flag("--server", options.is_server, "Answer the checks of another host");
  app.add_option("--device", options.devices,
                 "A NIC to look at, twice for two that back each other")
      ->type_name("NIC");
  app.add_option("--port", options.port, "The TCP port of the server")
      ->type_name("PORT")
      ->capture_default_str()
      ->check(CLI::Range(1, 65535));
  app.add_option("--only", options.only, "Run this check, or those of this topic; may be repeated")
      ->type_name("NAME");
  app.add_option("--without", options.without, "Leave this check or topic out; may be repeated")
      ->type_name("NAME");
  app.add_option("--memory", options.wishes.memory_gib, "What a program will register, in GiB")
      ->type_name("GIB")
      ->check(CLI::Range(0.0, 1e6));
  app.add_flag("--link", options.wishes.breaks_link, "Take the NICs' links down and up, too");
  app.add_option("--link-down", options.wishes.link_down,
                 "The command that does so; $NIC is the NIC")
      ->type_name("COMMAND");
  app.add_option("--link-up", options.wishes.link_up, "The command that undoes it")
      ->type_name("COMMAND");
  app.add_option("--timeout", options.timeout, "No check takes longer than this")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 3600));
  app.add_flag("--json", options.is_json, "Print JSON, for programs");
  app.add_flag("--list", options.is_list, "List the checks");
}

// What is wrong with the command line; empty: nothing.
std::string problem_of(const Options& options) {
  for (const auto* list : {&options.only, &options.without}) {
    for (const std::string& name : *list) {
      const bool is_known = std::ranges::any_of(
          checks(), [&](const Check& one) { return name == one.name || name == one.topic; });
      if (!is_known) return "there is no check or topic " + name + " (see --list)";
    }
  }
  if (options.devices.size() > 2) return "two NICs at most can be looked at";
  if (options.devices.size() == 2 && options.devices[0] == options.devices[1])
    return "--device names one NIC twice";
  if (options.is_server && !options.server.empty()) return "--server takes no HOST";
  if (options.wishes.link_down.empty() != options.wishes.link_up.empty())
    return "--link-down and --link-up belong together";
  return "";
}

int complain(const std::string& problem, int status) {
  std::fprintf(stderr, "shift-verify: %s\n", problem.c_str());
  return status;
}

int run(const Options& options) try {
  Subject host;
  host.wishes = options.wishes;
  host.nics = pair_choose(nics_read(), options.devices);
  host.is_one_host = options.server.empty();
  if (host.nics.empty()) return complain("this host has no RDMA device", kExitNothing);
  if (options.is_server) server_run(host, options.port);
  const auto session =
      host.is_one_host ? session_alone(host) : session_with(options.server, options.port);
  return Run(options, host, *session).all();
} catch (const std::exception& trouble) {  // also when a server talks nonsense
  return complain(trouble.what(), kExitNothing);
}

// Where SHIFT is enabled for the system, this program looks at what is beneath it all the same. The
// layer reads its settings before main(), so the program starts again.
void beneath_the_layer(char** argv) {
  const char* off = std::getenv("SHIFT_DISABLE");
  if (off != nullptr && std::string(off) == "1") return;
  setenv("SHIFT_DISABLE", "1", 1);
  execv("/proc/self/exe", argv);
  complain("it cannot be started again without the layer, which may be beneath it", 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "internal") return internal_main(argc, argv);
  beneath_the_layer(argv);
  Options options;
  CLI::App app("Looks whether this host's NICs, driver, kernel and network do what SHIFT counts on",
               "shift-verify");
  options_add(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  const std::string problem = problem_of(options);
  if (!problem.empty()) return complain(problem, kExitUsage);
  if (options.is_list) {
    std::fputs(list_text().c_str(), stdout);
    return 0;
  }
  return run(options);
}

// shift-system puts SHIFT before the stock RDMA libraries for all programs of the system, takes it
// away again, and shows which programs have it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "enabling.h"
#include "layout.h"
#include "processes.h"
#include "settings.h"

namespace {

using shift::system::Layout;
using shift::system::Standing;
using shift::system::State;

// The exit statuses; 3 is what init scripts end with when their service is off.
constexpr int kExitProblem = 1;
constexpr int kExitUsage = 2;
constexpr int kExitOff = 3;

int fail(const std::string& problem) {
  fprintf(stderr, "shift-system: %s\n", problem.c_str());
  return kExitProblem;
}

void warn_of_settings(const Layout& layout) {
  for (const std::string& line : shift::system::settings_check(layout).problems)
    fprintf(stderr, "shift-system: warning: %s\n", line.c_str());
}

bool may_change(const Layout& layout) {
  return !layout.root.empty() || geteuid() == 0;
}

int enable_run(const Layout& layout) {
  if (!may_change(layout)) return fail("only root can enable SHIFT for the system");
  const bool was_on = shift::system::standing_read(layout).state == State::kOn;
  const std::string problem = shift::system::enable(layout);
  if (!problem.empty()) return fail("SHIFT is not enabled: " + problem);
  warn_of_settings(layout);
  puts(was_on ? "SHIFT is enabled already"
              : "SHIFT is enabled: programs that start from now on have it");
  return 0;
}

int disable_run(const Layout& layout) {
  if (!may_change(layout)) return fail("only root can disable SHIFT for the system");
  const bool was_off = shift::system::standing_read(layout).state == State::kOff;
  const std::string problem = shift::system::disable(layout);
  if (!problem.empty()) return fail("SHIFT is not disabled: " + problem);
  puts(was_off ? "SHIFT is disabled already"
               : "SHIFT is disabled: programs that run keep it until they end");
  return 0;
}

void show_processes(const Layout& layout) {
  const auto all = shift::system::processes_read(layout);
  printf("processes with SHIFT: %d\n", all.with);
  if (!all.old.empty())
    printf("processes with SHIFT as it was before an upgrade or removal, until they end:\n");
  for (const auto& one : all.old)
    printf("  %d %s %s\n", one.pid, one.name.c_str(), one.library.c_str());
  if (!all.without.empty())
    printf(
        "processes without SHIFT, which were started before it, or find a libibverbs by a path:\n");
  for (const auto& one : all.without)
    printf("  %d %s %s\n", one.pid, one.name.c_str(), one.library.c_str());
  if (all.unknown != 0)
    printf("processes of other users, which only root can look into: %d\n", all.unknown);
}

int status_run(const Layout& layout) {
  const Standing standing = shift::system::standing_read(layout);
  const char* const states[] = {"disabled", "enabled", "neither enabled nor disabled"};
  printf("SHIFT %s is %s\n", SHIFT_VERSION, states[static_cast<int>(standing.state)]);
  if (standing.state == State::kBetween)
    printf("  %s; shift-system enable or disable mends it\n", standing.problem.c_str());
  for (const auto& [name, path] : standing.found)
    printf("  %s is %s\n", name.c_str(), path.c_str());
  const auto settings = shift::system::settings_check(layout);
  if (!settings.exists)
    printf("there is no /etc/shift.conf, so the defaults hold\n");
  else if (settings.problems.empty())
    printf("/etc/shift.conf has no mistakes\n");
  for (const std::string& line : settings.problems) printf("mistake: %s\n", line.c_str());
  show_processes(layout);
  if (standing.state == State::kBetween || !settings.problems.empty()) return kExitProblem;
  return standing.state == State::kOn ? 0 : kExitOff;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Puts SHIFT before the stock RDMA libraries for all programs of the system",
               "shift-system");
  app.footer("See shift-system(8).");
  app.set_version_flag("--version", "shift-system " SHIFT_VERSION);
  app.require_subcommand(1);
  std::string root;
  const auto add = [&](const char* name, const char* what) {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("--root", root, "The system lies below DIR")->type_name("DIR");
    return command;
  };
  const CLI::App* enable = add("enable", "Programs that are started from now on have SHIFT");
  const CLI::App* disable = add("disable", "Programs that are started from now on do not have it");
  add("status", "Say whether it is enabled, which processes do without, and what is misconfigured");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  Layout layout;
  std::error_code error;
  if (!root.empty()) layout.root = std::filesystem::canonical(root, error);
  if (error) return fail(root + ": " + error.message());
  if (layout.root == "/") layout.root.clear();
  if (*enable) return enable_run(layout);
  if (*disable) return disable_run(layout);
  return status_run(layout);
}

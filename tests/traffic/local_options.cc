// Options that every traffic program has.
#include "local_options.h"

#include <cstdio>

#include "report.h"

namespace traffic {

void local_options_add(CLI::App* app, Local* local) {
  app->add_option("host", local->server, "server to connect to");
  app->add_option("-p,--port", local->port, "TCP port; a server with 0 prints the one it got");
  app->add_option("--listen", local->listen, "own address of a server, default: 127.0.0.1");
  app->add_option("-d,--device", local->device, "verbs device, default: the first");
  app->add_option("-x,--gid-index", local->gid_index, "GID index");
  app->add_option("--timeout-ms", local->timeout_ms, "bound on the whole run");
  app->add_option("--stall-ms", local->stall_ms, "bound on time without progress");
  app->add_option("--json", local->json_path, "write the result here");
  app->add_option("--timeline", local->timeline_path, "write bytes completed per ms here, as CSV");
  app->add_flag("--outlive", local->does_outlive,
                "when the other process is gone, wait for the error of every QP");
  app->add_flag("--selftest", local->selftest, "plant corruptions and prove that each is reported");
}

int app_parse(CLI::App* app, int argc, char** argv) {
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app->exit(e) == 0 ? kExitRight : kExitUsage;
  }
  return -1;
}

int problem_tell(const char* program, const std::string& problem) {
  if (problem.empty()) return -1;
  fprintf(stderr, "%s: %s\n", program, problem.c_str());
  return kExitUsage;
}

}  // namespace traffic

// The command line options that all traffic programs share: those of one process, and those that
// every kind of traffic has.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "options.h"

namespace traffic {

void local_options_add(CLI::App* app, Local* local);

template <class Options>
void run_options_add(CLI::App* app, Options* options) {
  app->add_option("--duration-ms", options->duration_ms, "run this long instead");
  app->add_flag("--until-stop", options->until_stop,
                "run until a line comes on standard input instead");
  app->add_option("--seed", options->seed, "of all patterns, sizes and choices");
  app->add_option("--quiet-ms", options->quiet_ms, "watch for ghost writes this long at the end");
  app->add_option("--qp-timeout", options->qp_timeout);
  app->add_option("--retry-count", options->retry_count);
}

// app_parse() and problem_tell() return -1 when the program shall go on, else its exit code.
int app_parse(CLI::App* app, int argc, char** argv);
int problem_tell(const char* program, const std::string& problem);

// Judges the parsed options. Returns what problem_tell() returns.
template <class Options>
int run_options_check(const char* program, Options* options,
                      std::string (*problem_of)(const Options&)) {
  if (options->duration_ms != 0 || options->until_stop) options->messages = 0;
  return problem_tell(program, problem_of(*options));
}

}  // namespace traffic

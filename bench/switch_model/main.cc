// switch-model tells how long the switch of many QPs takes in the layer's own code: two hosts with
// fake NICs, where each thread of the layer has a processor of its own. What a thread does takes as
// long as it takes on this machine; a NIC's commands, and messages between the hosts, take as long
// as the options say. It prints JSON.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "switch_model/run.h"
#include "util/log.h"

namespace {

using namespace shift;
using namespace switch_model;
using nlohmann::json;

[[noreturn]] void fail(const std::string& message) {
  fprintf(stderr, "switch-model: %s\n", message.c_str());
  exit(1);
}

double us(Figures::Duration span) {
  return std::chrono::duration<double, std::micro>(span).count();
}

json told(const Figures& run) {
  return {{"all_us", us(run.all)},
          {"control_us", {us(run.control[0]), us(run.control[1])}},
          {"commands_us", us(run.commands)},
          {"messages", run.messages},
          {"tasks", run.tasks}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  int repeat = 3, command_us = 1, message_us = 30;
  std::string events;
  CLI::App app("How long the layer's own code takes for the switch of many QPs");
  app.add_option("--qps", options.qps, "queue pairs between the hosts");
  app.add_option("--receives", options.receives, "posted on each, at both ends");
  app.add_option("--sends", options.sends, "under way on each, at both ends");
  app.add_flag("--shared-cq", options.shares_cq, "one completion queue for all");
  app.add_option("--command-us", command_us, "what a NIC takes for a command");
  app.add_option("--message-us", message_us, "what a message takes to the other host");
  app.add_option("--events", events, "write event records to FILE");
  app.add_option("--repeat", repeat, "switches, each with new hosts");
  CLI11_PARSE(app, argc, argv);
  options.command = std::chrono::microseconds(command_us);
  options.message = std::chrono::microseconds(message_us);
  if (!events.empty() && events_open(events.c_str()) != nullptr) fail("cannot open " + events);
  log_set_level(LogLevel::kError);
  char folder[] = "/tmp/switch-model-XXXXXX";
  if (mkdtemp(folder) == nullptr) fail("cannot make a folder in /tmp");
  options.board = folder;
  json runs = json::array();
  std::string problem;
  try {
    for (int i = 0; i < repeat; i++) runs.push_back(told(switch_run(options)));
  } catch (const std::exception& failure) {
    problem = failure.what();
  }
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (!problem.empty()) fail(problem);
  printf("%s\n", json{{"qps", options.qps}, {"runs", runs}}.dump().c_str());
  return 0;
}

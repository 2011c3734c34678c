// `cxemu script` applies faults by the clock.
#include "fabric/script.h"

#include <time.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "host/cli/commands.h"
#include "host/cli/target.h"

namespace cxemu {
namespace {

std::string file_read(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file) throw std::runtime_error(path + ": " + strerror(errno));
  return text;
}

void sleep_until(uint64_t when_ns) {
  const timespec when = {static_cast<time_t>(when_ns / 1'000'000'000),
                         static_cast<long>(when_ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) == EINTR) {
  }
}

void event_print(const ScriptEvent& event, uint64_t done_ns, bool as_json) {
  if (as_json) {
    const nlohmann::json shown = {{"time", static_cast<double>(done_ns) / 1e9},
                                  {"planned", static_cast<double>(event.time_ns) / 1e9},
                                  {event.target.nic != nullptr ? "nic" : "host", event.name},
                                  {"faults", event.text},
                                  {"line", event.line}};
    printf("%s\n", shown.dump().c_str());
  } else {
    printf("%10.6f %s %s\n", static_cast<double>(done_ns) / 1e9, event.name.c_str(),
           event.text.c_str());
  }
  fflush(stdout);
}

}  // namespace

int script_run(const std::string& fabric_name, const std::string& path, uint32_t seed,
               bool as_json) {
  const Fabric fabric = fabric_open(fabric_name);
  std::vector<ScriptEvent> events;
  std::string error;
  const std::string name = path == "-" ? "standard input" : path;
  if (!script_parse(*fabric, file_read(path), name, seed, &events, &error))
    throw std::runtime_error(error);
  const uint64_t start_ns = monotonic_ns();
  for (const ScriptEvent& event : events) {
    sleep_until(start_ns + event.time_ns);
    for (const FaultCommand& fault : event.faults)
      if (!target_fault(fabric, fabric_name, event.target, fault, &error))
        throw std::runtime_error(name + ":" + std::to_string(event.line) + ": " + error);
    event_print(event, monotonic_ns() - start_ns, as_json);
  }
  return 0;
}

}  // namespace cxemu

// verbs-cost measures what verbs calls cost with whatever verbs library it runs on. It is a plain
// verbs program: `verbs_cost.py` runs it on the stock library and on the front and compares.
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "control.h"
#include "engine_pause.h"
#include "rings.h"

namespace {

using nlohmann::json;

struct Options {
  std::string device;
  int gid_index = 3;
  int cpu = -1;
  int control = 64;
  bool rings = true;
  bench::RingOptions ring;
};

json summary(std::vector<double> values) {
  if (values.empty()) return {{"rounds", 0}};
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
  };
  return {{"rounds", values.size()}, {"p10", at(0.1)}, {"median", at(0.5)}, {"p90", at(0.9)}};
}

// Pins only the calling thread: the threads of the emulator and the layer keep the other
// processors.
void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) bench::fail("sched_setaffinity", errno);
}

json measure(const Options& options) {
  json out;
  bench::Device device(options.device, options.gid_index);
  if (options.cpu >= 0) pin(options.cpu);
  out["engine_paused"] = bench::EnginePause::available();
  out["rings"] = json::array();
  if (options.rings) {
    for (const auto& result : bench::rings_measure(device, options.ring)) {
      out["rings"].push_back({{"name", result.name},
                              {"unit", result.unit},
                              {"virtual", result.is_virtual},
                              {"ns", summary(result.ns)},
                              {"calls", result.calls},
                              {"units_per_call", result.units_per_call}});
    }
  }
  out["control"] = json::array();
  if (options.control > 0) {
    for (const auto& result : bench::control_measure(device, options.control)) {
      out["control"].push_back({{"name", result.name}, {"us", summary(result.us)}});
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what verbs calls cost; prints JSON", "verbs-cost");
  app.add_option("-d,--device", options.device, "verbs device, default: the first");
  app.add_option("-x,--gid-index", options.gid_index, "GID index")->capture_default_str();
  app.add_option("--cpu", options.cpu, "measure on this processor");
  app.add_option("--rounds", options.ring.rounds, "rounds per ring operation, 0: none")
      ->capture_default_str();
  app.add_option("--wrs", options.ring.wrs_per_round, "WRs per round")
      ->check(CLI::IsMember({16, 32, 64, 128}))
      ->capture_default_str();
  app.add_option("--settle-ms", options.ring.settle_ms, "wait after connecting")
      ->capture_default_str();
  app.add_option("--control", options.control, "calls of each control verb, 0: none")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.rings = options.ring.rounds > 0;
  printf("%s\n", measure(options).dump().c_str());
  return 0;
}

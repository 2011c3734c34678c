// cxemu runs programs on emulated hosts, sets faults, and shows and removes fabrics.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "host/cli/commands.h"

namespace {

std::string fabric_default() {
  const char* inherited = getenv("CXEMU_FABRIC");  // set by `cxemu exec` for its command
  return inherited != nullptr && *inherited != '\0' ? inherited : "default";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Software ConnectX NICs under the stock RDMA libraries", "cxemu");
  app.set_version_flag("--version", "cxemu " CXEMU_VERSION);
  app.require_subcommand(1);

  cxemu::ExecOptions exec_options;
  std::string fabric = fabric_default();
  const auto fabric_option = [&fabric](CLI::App* command) {
    command->add_option("--fabric", fabric, "Name of the fabric")->capture_default_str();
  };
  const auto host_options = [&](CLI::App* command) {
    fabric_option(command);
    command->add_option("--host", exec_options.host, "Name of the host, which is made if it is new")
        ->required();
    command->add_option("--nics", exec_options.nics, "Least number of NICs of the host (default 2)")
        ->check(CLI::Range(1, 8));
    command->add_option("--wire", exec_options.wire,
                        "How a new fabric carries packets: unix (default) or udp");
    command->add_option("--topology", exec_options.topology,
                        "A file that says where the host's NICs sit, and their rates");
  };

  CLI::App* exec = app.add_subcommand("exec", "Run a command on an emulated host");
  host_options(exec);
  exec->add_option("command", exec_options.command, "Command and its arguments, after --")
      ->required();
  exec->positionals_at_end();

  CLI::App* env =
      app.add_subcommand("env", "Print the environment of an emulated host for a shell");
  host_options(env);

  CLI::App* fault = app.add_subcommand("fault", "Break or heal a NIC or a host");
  std::string target;
  std::vector<std::string> faults;
  fabric_option(fault);
  fault->add_option("nic", target, "HOST/DEVICE, for example a/mlx5_0, or HOST")->required();
  fault
      ->add_option(
          "fault", faults,
          "link-down, link-up, kill, revive, drop-data, drop-acks, loss=PERCENT, delay=MS, "
          "reorder, duplicate, corrupt, flap=DOWN_MS/UP_MS, slow-commands=MS, hang-commands, "
          "slow=PERCENT, gid-change, gid-restore, heal; of a host: cut, power-off, power-on, heal; "
          "cxemu(1) explains the modifiers")
      ->required();
  uint32_t seed = 1;
  fault->add_option("--seed", seed, "Seed of the dice for loss and other percentages (default 1)");

  CLI::App* nic = app.add_subcommand("nic", "Set the rate and the place of a NIC");
  std::vector<std::string> words;
  fabric_option(nic);
  nic->add_option("nic", target, "HOST/DEVICE, for example a/mlx5_0")->required();
  nic->add_option("word", words,
                  "rate=RATE (sent), rx=RATE (received), as 200Mbit or off; pci=0000:17:00.0, "
                  "numa=N, speed=GT, width=LANES")
      ->required();

  CLI::App* calibrate =
      app.add_subcommand("calibrate", "Measure what the NICs of this machine carry in all");
  int busy_nics = 4;
  double seconds = 1;
  calibrate
      ->add_option("--nics", busy_nics, "The greatest number of NICs that are busy (default 4)")
      ->check(CLI::Range(1, 8));
  calibrate->add_option("--seconds", seconds, "Length of each measurement (default 1)")
      ->check(CLI::Range(0.1, 60.0));

  CLI::App* capture = app.add_subcommand("capture", "Record the packets of NICs");
  cxemu::CaptureOptions capture_options;
  fabric_option(capture);
  capture->add_option("--out", capture_options.out, "The pcapng file to write")->required();
  capture->add_option("--nic", capture_options.nics, "HOST/DEVICE (default: all), repeatable")
      ->allow_extra_args(false);
  capture->add_option(
      "command", capture_options.command,
      "Command to run during the capture, after --; default: capture until SIGINT or SIGTERM");
  capture->positionals_at_end();

  CLI::App* list = app.add_subcommand("list", "Show hosts, NICs, faults and counters");
  bool json = false;
  fabric_option(list);
  list->add_flag("--json", json, "Print JSON");
  calibrate->add_flag("--json", json, "Print JSON");

  CLI::App* script = app.add_subcommand("script", "Set faults at given times");
  std::string script_file;
  fabric_option(script);
  script
      ->add_option("file", script_file,
                   "Lines TIME[+PERIODxCOUNT] HOST/DEVICE FAULT..., or HOST; - is stdin")
      ->required();
  script->add_option("--seed", seed, "Seed of the dice for loss and other percentages (default 1)");
  script->add_flag("--json", json, "Print events as JSON, one per line");

  CLI::App* events = app.add_subcommand("events", "Show what happened to the NICs");
  bool follow = false;
  fabric_option(events);
  events->add_flag("--follow,-f", follow, "Keep running and print new events");
  events->add_flag("--json", json, "Print JSON, one event per line");

  CLI::App* doctor = app.add_subcommand("doctor", "Say what would not work on this machine");
  std::string program;
  doctor->add_option("program", program, "Also check whether this program can run emulated");
  doctor->add_flag("--json", json, "Print JSON");

  CLI::App* clean = app.add_subcommand("clean", "Remove a fabric that is not in use");
  bool all = false;
  fabric_option(clean);
  clean->add_flag("--all", all, "Remove all unused fabrics of this user");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    fprintf(stderr, "cxemu: %s; see cxemu --help\n", error.what());
    return 2;
  }
  try {
    exec_options.fabric = capture_options.fabric = fabric;
    if (*exec) return cxemu::exec_run(exec_options);
    if (*env) return cxemu::env_run(exec_options);
    if (*fault) return cxemu::fault_run(fabric, target, faults, seed);
    if (*nic) return cxemu::nic_run(fabric, target, words);
    if (*calibrate) return cxemu::calibrate_run(busy_nics, seconds, json);
    if (*capture) return cxemu::capture_run(capture_options);
    if (*list) return cxemu::list_run(fabric, json);
    if (*script) return cxemu::script_run(fabric, script_file, seed, json);
    if (*events) return cxemu::events_run(fabric, follow, json);
    if (*doctor) return cxemu::doctor_run(program, json);
    return cxemu::clean_run(fabric, all);
  } catch (const std::exception& error) {
    fprintf(stderr, "cxemu: %s\n", error.what());
    return 1;
  }
}

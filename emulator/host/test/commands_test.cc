// The commands that inspect a fabric and control it: list, events, script, doctor, and the sysfs
// files that follow what happens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "host/test/emulated_test.h"

namespace cxemu {
namespace {

using nlohmann::json;

class CommandsTest : public EmulatedTest {
 protected:
  static std::vector<std::string> cxemu(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), CXEMU_PROGRAM);
    return arguments;
  }
  static json json_of(const std::vector<std::string>& arguments) {
    std::string output;
    EXPECT_EQ(run(cxemu(arguments), &output), 0) << output;
    return json::parse(output, nullptr, false);
  }
  static json nic_of(const json& list, size_t host, size_t nic) {
    return list["hosts"][host]["nics"][nic];
  }
  static std::vector<json> events() {
    std::string output;
    EXPECT_EQ(run(cxemu({"events", "--json"}), &output), 0) << output;
    std::vector<json> all;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
  }
  // What a program on host a reads under the port of mlx5_0; empty when reading fails.
  static std::string port_file(const std::string& path) {
    std::string output;
    if (run(on("a", {"cat", "/sys/class/infiniband/mlx5_0/ports/1/" + path}), &output) != 0)
      return "";
    return output.substr(0, output.find('\n'));
  }
  // ib_write_bw that runs until it is stopped or fails, with a server on a and a client on b. Its
  // patience is about a second, since with less a busy machine looks like a fault.
  struct Traffic {
    std::unique_ptr<Process> server, client;
  };
  Traffic traffic_start() {
    const int port = port_free();
    std::vector<std::string> command = {
        "ib_write_bw", "-x", "3",   "-F", "-s",     "4096", "-u",
        "15",          "-D", "300", "-d", "mlx5_0", "-p",   std::to_string(port)};
    Traffic traffic;
    traffic.server = std::make_unique<Process>(on("a", command));
    EXPECT_TRUE(wait_until([&] { return port_listening(port); })) << traffic.server->output();
    command.push_back(address(0, 0));
    traffic.client = std::make_unique<Process>(on("b", command));
    EXPECT_TRUE(wait_until([&] { return fabric_.nic(0, 0)->rx_packets > 100; }))
        << traffic.client->output();
    return traffic;
  }
  std::string script_write(const std::string& text) {
    const std::string path = ::testing::TempDir() + "cxemu-script-" + std::to_string(getpid());
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(CommandsTest, ListShowsProcessesAndQueuePairs) {
  const Traffic traffic = traffic_start();
  const json list = json_of({"list", "--json"});
  const json a = nic_of(list, 0, 0), b = nic_of(list, 1, 0);
  ASSERT_EQ(a["qps"].size(), 1u) << list.dump(1);
  ASSERT_EQ(b["qps"].size(), 1u);
  EXPECT_EQ(a["port"], "active");
  EXPECT_EQ(a["state"], "ok");
  EXPECT_EQ(b["qps"][0]["type"], "RC");
  EXPECT_EQ(b["qps"][0]["state"], "RTS");
  EXPECT_EQ(b["qps"][0]["peer_address"], address(0, 0));
  EXPECT_EQ(b["qps"][0]["peer_qpn"], a["qps"][0]["qpn"]);
  EXPECT_GT(b["tx_bytes"].get<uint64_t>(), 4096u);
  const json process = list["hosts"][1]["process_list"][0];
  EXPECT_EQ(process["program"], "ib_write_bw");
  EXPECT_EQ(process["pid"], b["qps"][0]["pid"]);
  EXPECT_EQ(process["qps"], 1);
  std::string text;
  EXPECT_EQ(run(cxemu({"list"}), &text), 0);
  EXPECT_NE(text.find("RTS"), std::string::npos) << text;
}

// The order does not depend on the file system, although disks and memory list files differently.
TEST_F(CommandsTest, DevicesAreListedInTheOrderOfTheirNumbers) {
  std::string wanted;
  for (int nic = 0; nic < 8; nic++) wanted += "mlx5_" + std::to_string(nic) + " ";
  for (const char* place : {"/dev/shm", "/var/tmp"}) {
    if (access(place, W_OK) != 0) continue;
    std::string dir = std::string(place) + "/cxemu-order-XXXXXX";
    ASSERT_NE(mkdtemp(dir.data()), nullptr);
    const std::vector<std::string> here = {"env", "XDG_RUNTIME_DIR=" + dir, CXEMU_PROGRAM};
    const auto in_place = [&](std::vector<std::string> more) {
      more.insert(more.begin(), here.begin(), here.end());
      return more;
    };
    std::string listed, cleaned;
    EXPECT_EQ(run(in_place({"exec", "--fabric", "order", "--host", "a", "--nics", "8", "--", "sh",
                            "-c", "ibv_devices | awk '/mlx5/ {printf \"%s \", $1}'"}),
                  &listed),
              0);
    EXPECT_EQ(listed, wanted) << place;
    EXPECT_EQ(run(in_place({"clean", "--fabric", "order"}), &cleaned), 0) << cleaned;
    std::filesystem::remove_all(dir);
  }
}

TEST_F(CommandsTest, CountersOfThePortFollowTraffic) {
  EXPECT_EQ(port_file("counters/port_rcv_packets"), "0");
  {
    const Traffic traffic = traffic_start();
    const uint64_t before = strtoull(port_file("counters/port_rcv_data").c_str(), nullptr, 10);
    EXPECT_GT(before, 100u * 1024);
    EXPECT_TRUE(wait_until([&] {
      return strtoull(port_file("counters/port_rcv_data").c_str(), nullptr, 10) > before;
    }));
    EXPECT_EQ(port_file("hw_counters/out_of_sequence"), "0");
    fault("a/mlx5_0", "loss=5");
    EXPECT_TRUE(wait_until([&] { return port_file("hw_counters/out_of_sequence") != "0"; }));
  }
  EXPECT_NE(port_file("hw_counters/rx_write_requests"), "0");
  EXPECT_EQ(port_file("hw_counters/rx_icrc_encapsulated"), "0");
  EXPECT_EQ(port_file("hw_counters/no_such_counter"), "");
}

// NCCL goes these ways from a device to its place among the machine's other cards.
TEST_F(CommandsTest, DevicesAreOnAPciBus) {
  const auto shown = [](const std::vector<std::string>& command) {
    std::string output;
    EXPECT_EQ(run(on("a", command), &output), 0) << output;
    return output;
  };
  EXPECT_EQ(shown({"cat", "/sys/class/pci_bus/ce00:11/../../ce00:11:00.0/class"}), "0x020000\n");
  EXPECT_EQ(shown({"cat", "/sys/class/infiniband/mlx5_1/device/class"}), "0x020000\n");
  EXPECT_EQ(shown({"ls", "/sys/class/infiniband/mlx5_1/device/subsystem/"}), "");
}

TEST_F(CommandsTest, StateAndGidsInSysfsFollowFaults) {
  EXPECT_EQ(port_file("state"), "4: ACTIVE");
  fault("a/mlx5_0", "link-down");
  EXPECT_EQ(port_file("state"), "1: DOWN");
  EXPECT_EQ(port_file("phys_state"), "3: Disabled");
  EXPECT_EQ(port_file("counters/link_downed"), "1");
  fault("a/mlx5_0", "heal");
  EXPECT_EQ(port_file("state"), "4: ACTIVE");

  const std::string gid = port_file("gids/3");
  fault("a/mlx5_0", "gid-change");
  EXPECT_NE(port_file("gids/3"), gid);
  fault("a/mlx5_0", "gid-restore");
  EXPECT_EQ(port_file("gids/3"), gid);
  fault("a/mlx5_0", "gid-change=index");
  EXPECT_EQ(port_file("gids/5"), gid);
  EXPECT_EQ(port_file("gids/3"), "0000:0000:0000:0000:0000:0000:0000:0000");
  EXPECT_EQ(port_file("gid_attrs/types/5"), "RoCE v2");
  EXPECT_EQ(port_file("gid_attrs/types/3"), "") << "empty entries have no type";
}

// The dynamic linker splits LD_PRELOAD at these characters. The test copies the files, since the
// program finds its library in its own folder.
TEST_F(CommandsTest, ProgramsAreEmulatedFromAFolderOfAnyName) {
  namespace fs = std::filesystem;
  const fs::path top = fs::path(::testing::TempDir()) / ("cxemu-names-" + std::to_string(getpid()));
  for (const char* name : {"a b", "a:b"}) {
    const fs::path dir = top / name;
    fs::create_directories(dir / "bin");
    fs::create_directories(dir / "lib");
    fs::copy_file(CXEMU_PROGRAM, dir / "bin/cxemu");
    fs::copy_file(CXEMU_LIBRARY, dir / "lib/libcxemu.so");
    const std::string program = dir / "bin/cxemu";
    for (int round = 0; round < 2; round++) {
      std::string output;
      EXPECT_EQ(run({program, "exec", "--host", "a", "--", "ibv_devices"}, &output), 0);
      EXPECT_NE(output.find("mlx5_1"), std::string::npos) << output;
    }
    std::string output;
    EXPECT_EQ(run({program, "doctor"}, &output), 0) << output;
    // Here the folder of the state has such a name, too.
    EXPECT_NE(run({"env", "XDG_RUNTIME_DIR=" + dir.string(), program, "exec", "--host", "a", "--",
                   "ibv_devices"},
                  &output),
              0);
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
    EXPECT_NE(output.find("XDG_RUNTIME_DIR"), std::string::npos) << output;
  }
  fs::remove_all(top);
}

TEST_F(CommandsTest, ProgramsAreToldOfFlapsAndGidChanges) {
  Process probe(on("a", {VERBS_PROBE, "mlx5_0"}));
  ASSERT_FALSE(probe.line_wait("ready").empty()) << probe.output();
  fault("a/mlx5_0", "flap=200/100x1");
  EXPECT_EQ(probe.line_wait("event:"), "event: port error");
  EXPECT_EQ(probe.line_wait("event:"), "event: port active") << "without any command";
  fault("a/mlx5_0", "gid-change");
  EXPECT_EQ(probe.line_wait("event:"), "event: GID table change");
  std::vector<std::string> link;
  for (const json& event : events())
    if (event["kind"] == "link") link.push_back(event["text"]);
  EXPECT_EQ(link, (std::vector<std::string>{"down", "up"}));
}

TEST_F(CommandsTest, ATriggerStrikesUnderAStockProgramAndIsLogged) {
  const Traffic traffic = traffic_start();
  fault("b/mlx5_0", "drop-acks@wqe=50");
  EXPECT_NE(traffic.client->end_wait(), 0) << traffic.client->output();
  EXPECT_NE(traffic.client->output().find("Failed status 12"), std::string::npos)
      << traffic.client->output();
  const std::vector<json> all = events();
  const auto find = [&](const char* kind) {
    return std::find_if(all.begin(), all.end(), [&](const json& e) { return e["kind"] == kind; });
  };
  ASSERT_NE(find("triggered"), all.end());
  EXPECT_EQ((*find("triggered"))["text"], "drop-acks@wqe=50");
  EXPECT_EQ((*find("triggered"))["nic"], "b/mlx5_0");
  ASSERT_NE(find("qp-error"), all.end());
  EXPECT_EQ((*find("qp-error"))["syndrome"], 0x15);
  EXPECT_LT(find("triggered"), find("qp-error"));
}

TEST_F(CommandsTest, SlowAndHungCommandsAreListedAndLogged) {
  fault("a/mlx5_0", "slow-commands=0.5");
  json nic = nic_of(json_of({"list", "--json"}), 0, 0);
  EXPECT_EQ(nic["state"], "slow-commands=0.5");
  EXPECT_EQ(nic["held_commands"], 0);
  std::string output;
  EXPECT_EQ(run(on("a", {"ibv_devinfo", "-d", "mlx5_0"}), &output), 0) << output;
  nic = nic_of(json_of({"list", "--json"}), 0, 0);
  EXPECT_GT(nic["held_commands"].get<int>(), 0);
  fault("a/mlx5_0", "hang-commands");
  EXPECT_EQ(run(cxemu({"list"}), &output), 0);
  EXPECT_NE(output.find("active hang-commands"), std::string::npos) << output;
  fault("a/mlx5_0", "heal");
  std::vector<std::string> texts;
  for (const json& event : events()) texts.push_back(event["text"]);
  EXPECT_EQ(texts, (std::vector<std::string>{"slow-commands=0.5", "hang-commands", "heal"}));
}

TEST_F(CommandsTest, EventsCanBeFollowed) {
  Process follower(cxemu({"events", "--follow"}));
  fault("a/mlx5_0", "loss=1 peer=b/mlx5_0");
  EXPECT_NE(follower.line_wait("a/mlx5_0").find("loss=1 peer=b/mlx5_0"), std::string::npos);
  fault("b/mlx5_1", "kill");
  EXPECT_NE(follower.line_wait("b/mlx5_1").find("kill"), std::string::npos);
}

TEST_F(CommandsTest, AScriptRunsInTheOrderOfItsTimes) {
  const std::string script = script_write(
      "150ms a/mlx5_0 heal\n"
      "0 a/mlx5_0 link-down\n"
      "50ms+50msx2 b/mlx5_1 loss=1 dir=in\n");
  std::string output;
  ASSERT_EQ(run(cxemu({"script", script, "--json", "--seed", "9"}), &output), 0) << output;
  std::vector<std::string> seen;
  double last = 0;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const json event = json::parse(line);
    seen.push_back(event["nic"].get<std::string>() + " " + event["faults"].get<std::string>());
    EXPECT_GE(event["time"].get<double>(), event["planned"].get<double>());
    EXPECT_GE(event["time"].get<double>(), last);
    last = event["time"].get<double>();
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"a/mlx5_0 link-down", "b/mlx5_1 loss=1 dir=in",
                                            "b/mlx5_1 loss=1 dir=in", "a/mlx5_0 heal"}));
  const json nic = nic_of(json_of({"list", "--json"}), 1, 1);
  ASSERT_EQ(nic["rules"].size(), 1u);
  EXPECT_EQ(nic["rules"][0]["rule"], "loss=1 dir=in");
  EXPECT_EQ(nic["rules"][0]["seed"], 9);
}

TEST_F(CommandsTest, AWrongScriptDoesNothing) {
  const std::string script = script_write("0 a/mlx5_0 kill\n1 a/mlx5_7 heal\n");
  std::string output;
  EXPECT_EQ(run(cxemu({"script", script}), &output), 1);
  EXPECT_NE(output.find(":2: "), std::string::npos) << output;
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  EXPECT_EQ(fabric_.nic(0, 0)->kills, 0u);
}

TEST_F(CommandsTest, WrongFaultsAreOneLine) {
  for (const char* fault : {"fire", "loss=101", "flap=1", "slow-commands", "hang-commands=1"}) {
    std::string output;
    EXPECT_EQ(run(cxemu({"fault", "a/mlx5_0", "link-down", fault}), &output), 1);
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
    EXPECT_EQ(fabric_.nic(0, 0)->faults, 0u) << "none is applied";
  }
}

TEST_F(CommandsTest, DoctorFindsThisMachineFitAndSaysWhenOneIsNot) {
  const json well = json_of({"doctor", "--json"});
  EXPECT_EQ(well["ok"], true);
  EXPECT_GE(well["checks"].size(), 15u);
  for (const json& check : well["checks"]) {
    EXPECT_NE(check["status"], "fail") << check;
    EXPECT_EQ(check["status"] == "ok", check["advice"] == "") << check;
  }
  std::string output;
  EXPECT_EQ(run(cxemu({"doctor", "ibv_devinfo"}), &output), 0) << output;
  EXPECT_EQ(run({"env", "XDG_RUNTIME_DIR=/proc", CXEMU_PROGRAM, "doctor"}, &output), 1);
  EXPECT_NE(output.find("fail  state-dir"), std::string::npos) << output;
  EXPECT_EQ(run(cxemu({"doctor", "no-such-program"}), &output), 1);
}

}  // namespace
}  // namespace cxemu

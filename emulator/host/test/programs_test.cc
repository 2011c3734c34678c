// Stock programs on emulated hosts, both on healthy NICs and on NICs that break meanwhile.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "host/test/emulated_test.h"

namespace cxemu {
namespace {

class ProgramsTest : public EmulatedTest {
 protected:
  // Runs a server on host a and its client on host b; both must end well. Returns the client's
  // output.
  std::string pair(std::vector<std::string> command) {
    const int port = port_free();
    command.insert(command.end(), {"-d", "mlx5_0", "-p", std::to_string(port)});
    Process server(on("a", command));
    EXPECT_TRUE(wait_until([&] { return port_listening(port); })) << server.output();
    command.push_back(address(0, 0));
    std::string output;
    EXPECT_EQ(run(on("b", command), &output), 0) << output;
    EXPECT_EQ(server.end_wait(), 0) << server.output();
    return output;
  }
  // A program of perftest: its result line must name all messages. The bandwidth beside them may be
  // 0: perftest compares the processor's clock with the time of day first, and if the machine is
  // late then, it gives the clock up.
  void perftest(std::vector<std::string> command, int size, int count, int queue_pairs = 1) {
    command.insert(command.end(), {"-x", "3", "-F", "-s", std::to_string(size), "-n",
                                   std::to_string(count), "-q", std::to_string(queue_pairs)});
    const std::string output = pair(command);
    std::istringstream lines(output);
    int messages = 0;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      int first = 0, second = 0;
      if (fields >> first >> second && first == size) messages = second;
    }
    EXPECT_EQ(messages, count * queue_pairs) << output;
  }
};

TEST_F(ProgramsTest, DevinfoListsBothNics) {
  std::string output;
  ASSERT_EQ(run(on("a", {"ibv_devinfo", "-v"}), &output), 0) << output;
  EXPECT_NE(output.find("mlx5_0"), std::string::npos) << output;
  EXPECT_NE(output.find("mlx5_1"), std::string::npos) << output;
  EXPECT_NE(output.find("PORT_ACTIVE"), std::string::npos) << output;
  EXPECT_NE(output.find("::ffff:" + address(0, 0) + ", RoCE v2"), std::string::npos) << output;
}

TEST_F(ProgramsTest, PingpongChecksItsBytes) {
  EXPECT_NE(pair({"ibv_rc_pingpong", "-g", "3", "-n", "200", "-c"}).find("200 iters"),
            std::string::npos);
}

TEST_F(ProgramsTest, PingpongWithCompletionEvents) {
  EXPECT_NE(pair({"ibv_rc_pingpong", "-g", "3", "-n", "100", "-c", "-e"}).find("100 iters"),
            std::string::npos);
}

TEST_F(ProgramsTest, ExtendedQueuesAndLinkLocalAddresses) {
  // -t: ibv_create_cq_ex and ibv_start_poll; -N: ibv_create_qp_ex and ibv_wr_*.
  EXPECT_NE(pair({"ibv_rc_pingpong", "-g", "1", "-n", "100", "-c", "-t", "-N"}).find("100 iters"),
            std::string::npos);
}

TEST_F(ProgramsTest, PingpongsOfTheOtherServices) {
  const std::vector<std::string> rest = {"-g", "3", "-n", "200", "-c"};
  for (const std::vector<std::string>& program : {std::vector<std::string>{"ibv_uc_pingpong"},
                                                  {"ibv_ud_pingpong"},
                                                  {"ibv_ud_pingpong", "-e"},
                                                  {"ibv_srq_pingpong", "-q", "4"},
                                                  {"ibv_srq_pingpong", "-q", "4", "-e"}}) {
    std::vector<std::string> command = program;
    command.insert(command.end(), rest.begin(), rest.end());
    const std::string output = pair(command);
    EXPECT_NE(output.find("200 iters"), std::string::npos) << program[0] << ": " << output;
  }
}

TEST_F(ProgramsTest, DatagramsBetweenLinkLocalAddresses) {
  for (const char* index : {"0", "1"}) {
    const std::string output = pair({"ibv_ud_pingpong", "-g", index, "-n", "100", "-c"});
    EXPECT_NE(output.find("100 iters"), std::string::npos) << output;
  }
}

TEST_F(ProgramsTest, ExtendedReliableConnections) {
  EXPECT_NE(pair({"ibv_xsrq_pingpong", "-g", "3", "-n", "200"}).find("success"), std::string::npos);
  perftest({"ib_send_bw", "-c", "XRC"}, 4096, 200);
}

TEST_F(ProgramsTest, DatagramsAreAnsweredAndReceivesShared) {
  std::string output;
  EXPECT_EQ(run(on("a", {SERVICES_PROBE}), &output), 0);
  EXPECT_EQ(output, "ok\n");
}

TEST_F(ProgramsTest, BandwidthOfTheOtherServices) {
  perftest({"ib_send_bw", "-c", "UD"}, 4096, 300);
  perftest({"ib_send_bw", "-c", "UC"}, 4096, 300);
  perftest({"ib_write_bw", "-c", "UC"}, 4096, 300);
  perftest({"ib_send_bw", "-c", "UD", "--use-srq"}, 4096, 300);
  perftest({"ib_send_bw", "--use-srq"}, 4096, 300, 2);
}

TEST_F(ProgramsTest, WriteBandwidth) {
  perftest({"ib_write_bw"}, 65536, 300);
}

TEST_F(ProgramsTest, ReadBandwidth) {
  perftest({"ib_read_bw"}, 65536, 300);
}

TEST_F(ProgramsTest, SendBandwidth) {
  perftest({"ib_send_bw"}, 4096, 300);
}

TEST_F(ProgramsTest, ManyQueuePairs) {
  perftest({"ib_write_bw"}, 4096, 64, 16);
}

TEST_F(ProgramsTest, LinkDownKillsAStockProgramAndHealingHelpsTheNextOne) {
  const int port = port_free();
  std::vector<std::string> command = {
      "ib_write_bw", "-x", "3",  "-F", "-s",     "65536", "-u",
      "15",          "-D", "60", "-d", "mlx5_0", "-p",    std::to_string(port)};
  Process server(on("a", command));
  ASSERT_TRUE(wait_until([&] { return port_listening(port); })) << server.output();
  command.push_back(address(0, 0));
  Process client(on("b", command));
  const auto& received = fabric_.nic(0, 0)->rx_packets;
  ASSERT_TRUE(wait_until([&] { return received.load() > 1000; })) << client.output();
  fault("a/mlx5_0", "link-down");
  EXPECT_NE(client.end_wait(), 0);
  EXPECT_NE(client.output().find("Failed status 12"), std::string::npos) << client.output();
  fault("a/mlx5_0", "heal");
  perftest({"ib_write_bw"}, 4096, 100);
}

// The loss ends long before the program does: when the last acknowledgement is lost, the pingpong's
// other end has gone, and the request fails on any NIC. A request is sent eight times at most, so
// seven losses break none.
TEST_F(ProgramsTest, LossIsRetransmitted) {
  fault("a/mlx5_0", "loss=10 count=7");
  EXPECT_NE(pair({"ibv_rc_pingpong", "-g", "3", "-n", "200", "-c"}).find("200 iters"),
            std::string::npos);
  EXPECT_EQ(fabric_.nic(0, 0)->dropped_packets.load(), 7u);
}

// Packets must follow the addresses on both wires, also in a process that opened the NIC before. On
// the UDP wire, that process has the port and hands packets on.
TEST_F(ProgramsTest, NewConnectionsUseTheAddressesOfAChangedGidTable) {
  Process holder(on("a", {VERBS_PROBE, "mlx5_0"}));
  ASSERT_FALSE(holder.line_wait("ready").empty()) << holder.output();
  const std::string before = "::ffff:" + address(0, 0);
  const std::string after = before.substr(0, before.rfind('.')) + ".9";
  const auto works = [&](const char* program, const char* index, const std::string& gid) {
    const std::string output = pair({program, "-g", index, "-n", "100", "-c"});
    EXPECT_NE(output.find("100 iters"), std::string::npos) << program << ": " << output;
    EXPECT_NE(output.find("GID " + gid), std::string::npos) << output;
  };
  const auto everywhere = [&](const char* change) {
    for (const char* nic : {"a/mlx5_0", "b/mlx5_0"}) fault(nic, change);
    EXPECT_EQ(holder.line_wait("event:"), "event: GID table change");
  };
  everywhere("gid-change");
  works("ibv_rc_pingpong", "3", after);
  works("ibv_uc_pingpong", "3", after);
  works("ibv_ud_pingpong", "3", after);
  works("ibv_rc_pingpong", "1", "fe80::");
  everywhere("gid-change=index");
  works("ibv_rc_pingpong", "5", after);
  works("ibv_ud_pingpong", "5", after);
  everywhere("gid-restore");
  works("ibv_rc_pingpong", "3", before);
  EXPECT_EQ(fabric_.nic(0, 0)->dropped_packets.load(), 0u);
}

TEST(LibraryTest, ExportsOnlyWhatItsMapNames) {
  std::ifstream map(CXEMU_MAP);
  std::string text((std::istreambuf_iterator<char>(map)), {});
  for (size_t at; (at = text.find("/*")) != std::string::npos;)
    text.erase(at, text.find("*/", at) + 2 - at);
  const size_t begin = text.find("global:") + 7, end = text.find("local:");
  ASSERT_LT(end, text.size());
  std::set<std::string> wanted, found;
  for (char& c : text)
    if (c == ';') c = ' ';
  std::istringstream names(text.substr(begin, end - begin));
  for (std::string name; names >> name;) wanted.insert(name);
  std::string output;
  ASSERT_EQ(run({"nm", "-D", "--defined-only", "--format=posix", CXEMU_LIBRARY}, &output), 0);
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    found.insert(line.substr(0, line.find_first_of(" @")));
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace cxemu

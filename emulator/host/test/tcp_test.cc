// A fault of a NIC is a black hole for TCP through its address: nothing arrives, nothing is reset,
// and after healing everything that was sent arrives.
#include <gtest/gtest.h>

#include <optional>

#include "host/test/emulated_test.h"

namespace cxemu {
namespace {

class TcpTest : public EmulatedTest {
 protected:
  // Opens a connection from host b to host a through NIC `rail` of both.
  void connect(int rail) {
    server_->send_line("listen " + address(0, rail));
    port_ = server_->line_wait("listening").substr(10);
    connect_start(rail);
    EXPECT_EQ(ask(*client_, "state 30000"), "connected");
    EXPECT_EQ(ask(*server_, "accept"), "accepted");
  }
  void connect_start(int rail) {
    EXPECT_EQ(ask(*client_, "connect " + address(0, rail) + " " + port_), "connecting");
  }
  // Sends one line and reads one line.
  static std::string ask(Process& process, const std::string& line) {
    process.send_line(line);
    return process.line_wait("");
  }
  // Sends one word at a time until one does not arrive: the fault's effect is asynchronous. Returns
  // the lost word.
  std::string send_until_lost() {
    std::string word;
    EXPECT_TRUE(wait_until([&] {
      word = "w" + std::to_string(++sent_) + ";";
      EXPECT_EQ(ask(*client_, "send " + word), "sent");
      return ask(*server_, "recv 1000") == "nothing";
    }));
    return word;
  }

  void SetUp() override {
    EmulatedTest::SetUp();
    server_.emplace(on("a", {TCP_PROBE}));
    client_.emplace(on("b", {TCP_PROBE}));
  }
  void TearDown() override {
    server_.reset();
    client_.reset();
    EmulatedTest::TearDown();
  }

  std::optional<Process> server_, client_;
  std::string port_;
  int sent_ = 0;
};

class TcpFaultTest : public TcpTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(TcpFaultTest, BlackHoleAndBack) {
  const std::string parameter = GetParam();
  const std::string nic = parameter.substr(0, parameter.find(' '));
  connect(0);
  EXPECT_EQ(ask(*client_, "local"), "local " + address(1, 0));
  EXPECT_EQ(ask(*client_, "send hello"), "sent");
  EXPECT_EQ(ask(*server_, "recv 30000"), "received hello");
  fault(nic, parameter.substr(parameter.find(' ') + 1));
  const std::string lost = send_until_lost();
  EXPECT_EQ(ask(*server_, "recv 100"), "nothing");
  fault(nic, "heal");
  EXPECT_EQ(ask(*server_, "recv 30000"), "received " + lost);
  EXPECT_EQ(ask(*server_, "send back"), "sent");
  EXPECT_EQ(ask(*client_, "recv 30000"), "received back");
}

INSTANTIATE_TEST_SUITE_P(Faults, TcpFaultTest,
                         ::testing::Values("a/mlx5_0 link-down", "b/mlx5_0 link-down",
                                           "a/mlx5_0 kill", "a/mlx5_0 drop-data",
                                           "b/mlx5_0 drop-acks",
                                           "a/mlx5_0 drop-data peer=b/mlx5_0"));

TEST_F(TcpTest, NewConnectionsHangUntilHealed) {
  server_->send_line("listen " + address(0, 0));
  port_ = server_->line_wait("listening").substr(10);
  fault("a/mlx5_0", "link-down");
  connect_start(0);
  EXPECT_EQ(ask(*client_, "state 300"), "pending");
  fault("a/mlx5_0", "heal");
  EXPECT_EQ(ask(*client_, "state 30000"), "connected");
}

TEST_F(TcpTest, AListenerOnAllAddressesIsCutPerNic) {
  server_->send_line("listen 0.0.0.0");
  port_ = server_->line_wait("listening").substr(10);
  fault("b/mlx5_0", "link-down");
  connect_start(0);
  EXPECT_EQ(ask(*client_, "state 300"), "pending");
  connect_start(1);  // the other rail works meanwhile
  EXPECT_EQ(ask(*client_, "state 30000"), "connected");
  EXPECT_EQ(ask(*client_, "local"), "local " + address(1, 1));
}

TEST_F(TcpTest, AFlapAndAnotherPeersCutAreOverWithoutACommand) {
  connect(0);
  fault("a/mlx5_0", "drop-data peer=b/mlx5_1");
  EXPECT_EQ(ask(*client_, "send on"), "sent");
  EXPECT_EQ(ask(*server_, "recv 30000"), "received on");
  fault("a/mlx5_0", "flap=4000/1000x1");
  const std::string lost = send_until_lost();
  EXPECT_EQ(ask(*server_, "recv 30000"), "received " + lost);
}

TEST_F(TcpTest, TheOtherNicGoesOn) {
  connect(1);
  fault("a/mlx5_0", "kill");
  fault("b/mlx5_0", "link-down");
  EXPECT_EQ(ask(*client_, "send on"), "sent");
  EXPECT_EQ(ask(*server_, "recv 30000"), "received on");
}

// Programs look for the interface that a connection goes through.
TEST_F(TcpTest, TheHostsOwnAddressesAreOnTheLoopbackInterface) {
  for (const int rail : {0, 1}) {
    EXPECT_EQ(ask(*client_, "interfaces " + address(1, rail)), "on lo");
    EXPECT_EQ(ask(*client_, "interfaces " + address(0, rail)), "on") << "another host's";
  }
  EXPECT_EQ(ask(*client_, "interfaces 127.0.0.1"), "on lo") << "as the system says";
  const std::string before = address(1, 0);
  fault("b/mlx5_0", "gid-change");
  const std::string after = before.substr(0, before.rfind('.')) + ".9";
  EXPECT_EQ(ask(*client_, "interfaces " + after), "on lo");
  EXPECT_EQ(ask(*client_, "interfaces " + before), "on lo") << "TCP works through both";
  fault("b/mlx5_0", "gid-change=index");
  EXPECT_EQ(ask(*client_, "interfaces " + after), "on lo");
}

}  // namespace
}  // namespace cxemu

// Packets as RoCE tools see them: in captures of cxemu on both wires, and on the loopback
// interface. tshark identifies the packets. It shows the ICRC without checking it; the judge checks
// it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "host/test/emulated_test.h"
#include "nic/test/icrc_judge.h"

namespace cxemu {
namespace {

using Frame = std::vector<uint8_t>;

// The packets of one exchange of rc_probe.
const std::set<std::string> kOpcodes = {
    "4",   // SEND only
    "5",   // SEND only with immediate
    "6",   // WRITE first
    "8",   // WRITE last
    "10",  // WRITE only, which is refused
    "11",  // WRITE only with immediate
    "12",  // READ request
    "13",  // READ response first
    "15",  // READ response last
    "17",  // ACK, NAK
    "18",  // ATOMIC ACK
    "19",  // compare and swap
    "20",  // fetch and add
};
constexpr size_t kPacketsMin = 18;  // there and back

template <typename T>
T number_at(const std::string& data, size_t at) {
  T value = 0;
  if (at + sizeof value <= data.size()) memcpy(&value, data.data() + at, sizeof value);
  return value;
}

// The complete Ethernet frames of a pcapng or pcap file.
std::vector<Frame> frames_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string data((std::istreambuf_iterator<char>(in)), {});
  std::vector<Frame> frames;
  const auto add = [&](size_t at, uint32_t size) {
    if (at + size > data.size()) return;
    const auto* bytes = reinterpret_cast<const uint8_t*>(data.data()) + at;
    frames.emplace_back(bytes, bytes + size);
  };
  if (number_at<uint32_t>(data, 0) == 0x0a0d0d0a) {
    for (size_t at = 0; at + 12 <= data.size();) {
      const auto size = number_at<uint32_t>(data, at + 4);
      if (number_at<uint32_t>(data, at) == 6) add(at + 28, number_at<uint32_t>(data, at + 20));
      if (size < 12) break;
      at += size;
    }
  } else {
    for (size_t at = 24; at + 16 <= data.size();) {
      const auto size = number_at<uint32_t>(data, at + 8);
      add(at + 16, size);
      at += 16 + size;
    }
  }
  return frames;
}

void icrcs_judge(const std::vector<Frame>& frames) {
  for (Frame datagram : frames) {
    datagram.erase(datagram.begin(), datagram.begin() + 14);
    EXPECT_TRUE(test::icrc_valid(datagram));
    datagram[datagram.size() / 2] ^= 1;
    EXPECT_FALSE(test::icrc_valid(datagram));
  }
}

bool installed(const std::string& program) {
  return run({"which", program}) == 0;
}

class CaptureFileTest : public EmulatedTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    setenv("CXEMU_WIRE", GetParam(), 1);
    EmulatedTest::SetUp();
    file_ = ::testing::TempDir() + "cxemu-capture-" + std::to_string(getpid());
  }
  void TearDown() override {
    std::filesystem::remove(file_);
    EmulatedTest::TearDown();
    unsetenv("CXEMU_WIRE");
  }

  // Makes hosts a and b exchange one of everything.
  void exchange() {
    Process server(on("a", {RC_PROBE})), client(on("b", {RC_PROBE}));
    const std::string server_address = server.line_wait("address");
    const std::string client_address = client.line_wait("address");
    server.send_line(client_address);
    client.send_line(server_address);
    ASSERT_FALSE(server.line_wait("connected").empty()) << server.output();
    ASSERT_FALSE(client.line_wait("connected").empty()) << client.output();
    client.send_line("run");
    ASSERT_FALSE(client.line_wait("done").empty()) << client.output();
    quiet_wait();
  }
  // Waits until no packet has been seen for a while: on a busy machine a request is repeated, and
  // its second answer may be under way when the program has its completion. A process that is ended
  // then would never see it.
  void quiet_wait() {
    using namespace std::chrono_literals;
    const std::string spool = file_ + ".spool";
    uintmax_t seen = 0;
    auto since = std::chrono::steady_clock::now();
    const auto end = since + 20s;
    while (std::filesystem::exists(spool) && std::chrono::steady_clock::now() < end) {
      const uintmax_t size = std::filesystem::file_size(spool);
      const auto now = std::chrono::steady_clock::now();
      if (size == seen && now - since > 300ms) return;
      if (std::exchange(seen, size) != size) since = now;
      std::this_thread::sleep_for(10ms);
    }
  }
  struct Decoded {
    std::string opcode, aeth, error, icrc, malformed, interface;
  };
  // Returns one entry for each frame of the file.
  std::vector<Decoded> tshark() {
    std::vector<std::string> command = {"tshark", "-r", file_, "-T", "fields", "-E", "separator=;"};
    for (const char* field : {"infiniband.bth.opcode", "infiniband.aeth.syndrome.opcode",
                              "infiniband.aeth.syndrome.error_code", "infiniband.invariant.crc",
                              "_ws.malformed", "frame.interface_name"})
      command.insert(command.end(), {"-e", field});
    std::string output;
    EXPECT_EQ(run(command, &output), 0) << output;
    std::vector<Decoded> all;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("Running as user")) continue;  // tshark warns when it runs as root
      std::istringstream words(line);
      Decoded& one = all.emplace_back();
      for (std::string* field :
           {&one.opcode, &one.aeth, &one.error, &one.icrc, &one.malformed, &one.interface})
        std::getline(words, *field, ';');
    }
    return all;
  }
  void decoded_check(const std::vector<Decoded>& packets) {
    const auto frames = frames_of(file_);
    ASSERT_EQ(packets.size(), frames.size());
    std::set<std::string> opcodes;
    int refusals = 0;
    for (size_t i = 0; i < frames.size(); i++) {
      const Decoded& one = packets[i];
      opcodes.insert(one.opcode);
      EXPECT_EQ(one.malformed, "");
      // tshark takes the last four bytes for the ICRC.
      const uint32_t last = number_at<uint32_t>({frames[i].end() - 4, frames[i].end()}, 0);
      EXPECT_EQ(strtoul(one.icrc.c_str(), nullptr, 16), ntohl(last));
      if (one.aeth != "3") continue;  // NAK
      EXPECT_EQ(one.error, "2") << "remote access error";
      refusals++;
    }
    EXPECT_EQ(opcodes, kOpcodes);
    EXPECT_GT(refusals, 0);
  }

  std::string file_;
};

TEST_P(CaptureFileTest, HoldsEverythingThatBothEndsSee) {
  Process capture({CXEMU_PROGRAM, "capture", "--out", file_});
  ASSERT_FALSE(capture.line_wait("capturing").empty()) << capture.output();
  exchange();
  capture.signal_send(SIGINT);
  ASSERT_EQ(capture.end_wait(), 0) << capture.output();
  const auto frames = frames_of(file_);
  EXPECT_NE(capture.output().find(std::to_string(frames.size()) + " packets"), std::string::npos);
  icrcs_judge(frames);
  std::map<Frame, int> times;
  for (const Frame& frame : frames) times[frame]++;
  EXPECT_GE(times.size(), kPacketsMin);
  for (const auto& [frame, count] : times) EXPECT_EQ(count % 2, 0) << "seen at one end only";
  EXPECT_FALSE(std::filesystem::exists(file_ + ".spool"));
  if (!installed("tshark")) GTEST_SKIP() << "tshark is not installed: nobody decodes the packets";
  const auto packets = tshark();
  decoded_check(packets);
  std::set<std::string> interfaces;
  for (const Decoded& one : packets) interfaces.insert(one.interface);
  EXPECT_EQ(interfaces, (std::set<std::string>{"a/mlx5_0", "b/mlx5_0"}));
}

TEST_P(CaptureFileTest, LastsAsLongAsItsCommand) {
  std::string output;
  EXPECT_EQ(run({CXEMU_PROGRAM, "capture", "--out", file_, "--nic", "a/mlx5_0", "--", "sh", "-c",
                 "exit 7"},
                &output),
            7);
  EXPECT_NE(output.find("0 packets"), std::string::npos) << output;
  exchange();
  EXPECT_TRUE(frames_of(file_).empty());
  for (int i = 0; i < kMaxNics; ++i) EXPECT_EQ(fabric_->nic[i].capture, 0u);
}

TEST_P(CaptureFileTest, OneAtATime) {
  Process capture({CXEMU_PROGRAM, "capture", "--out", file_});
  ASSERT_FALSE(capture.line_wait("capturing").empty()) << capture.output();
  std::string output;
  EXPECT_EQ(run({CXEMU_PROGRAM, "capture", "--out", file_ + "2", "--", "true"}, &output), 1);
  EXPECT_NE(output.find("running already"), std::string::npos) << output;
  EXPECT_EQ(run({CXEMU_PROGRAM, "capture", "--out", file_, "--nic", "c/mlx5_0", "--", "true"}), 1);
  capture.signal_send(SIGTERM);
  EXPECT_EQ(capture.end_wait(), 0) << capture.output();
  EXPECT_EQ(run({CXEMU_PROGRAM, "capture", "--out", file_, "--", "true"}), 0);
}

INSTANTIATE_TEST_SUITE_P(Wires, CaptureFileTest, ::testing::Values("unix", "udp"));

class LiveCaptureTest : public CaptureFileTest {};

// This uses the kernel's headers, not ours: the kernel's values for the fields that the ICRC covers
// must be those that we expect.
TEST_P(LiveCaptureTest, LoopbackShowsTheSame) {
  if (!installed("tcpdump")) GTEST_SKIP() << "tcpdump is not installed: the wire is not looked at";
  const std::string network = "127." + std::to_string(fabric_->net) + ".0.0/16";
  Process tcpdump({"tcpdump", "-i", "lo", "-U", "-B", "32768", "--immediate-mode", "-Z", "root",
                   "-w", file_, "udp port 4791 and net " + network});
  if (tcpdump.line_wait("listening on").empty())
    GTEST_SKIP() << "no permission to capture on lo: the wire is not looked at: "
                 << tcpdump.output();
  exchange();
  const uint64_t sent = fabric_.nic(0, 0)->tx_packets + fabric_.nic(1, 0)->tx_packets;
  ASSERT_TRUE(wait_until([&] { return frames_of(file_).size() >= sent; }));
  tcpdump.signal_send(SIGINT);
  tcpdump.end_wait();
  const auto frames = frames_of(file_);
  EXPECT_EQ(frames.size(), sent);
  EXPECT_GE(frames.size(), kPacketsMin);
  icrcs_judge(frames);
  if (!installed("tshark")) GTEST_SKIP() << "tshark is not installed: nobody decodes the packets";
  decoded_check(tshark());
}

INSTANTIATE_TEST_SUITE_P(Wires, LiveCaptureTest, ::testing::Values("udp"));

}  // namespace
}  // namespace cxemu

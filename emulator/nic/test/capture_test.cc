// What a capture contains, in virtual time: the packets of both ends with a correct ICRC, nothing
// that a fault dropped, and nothing after its end.
#include "nic/capture.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "fabric/gid.h"
#include "icrc_judge.h"
#include "rig.h"

namespace cxemu::test {
namespace {

struct Captured {
  uint32_t nic;
  CaptureDirection direction;
  std::vector<uint8_t> frame;

  std::vector<uint8_t> datagram() const { return {frame.begin() + 14, frame.end()}; }
  Packet packet() const {
    Packet decoded = {.opcode = Operation::kAcknowledge};
    EXPECT_TRUE(packet_decode(frame.data() + 42, frame.size() - 46, &decoded));
    return decoded;
  }
};

class CaptureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string dir = ::testing::TempDir() + "cxemu-capture-XXXXXX";
    ASSERT_NE(mkdtemp(dir.data()), nullptr);
    dir_ = dir;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Works as `cxemu capture` does, but without the fabric's handle.
  void begin(const std::vector<FabricNic*>& nics) {
    const std::string path = dir_ + "/spool" + std::to_string(++session_);
    std::ofstream(path).close();
    memcpy(rig_.fabric->capture_path, path.c_str(), path.size() + 1);
    rig_.fabric->capture_pid = getpid();
    for (FabricNic* nic : nics) nic->capture = session_;
  }
  void end() {
    for (FabricNic& nic : rig_.fabric->nic) nic.capture = 0;
    for (const FabricProcess& process : rig_.fabric->process) EXPECT_EQ(process.capturing, 0u);
  }
  std::vector<Captured> captured() const {
    std::ifstream in(dir_ + "/spool" + std::to_string(session_), std::ios::binary);
    std::vector<Captured> all;
    CaptureRecord record;
    while (in.read(reinterpret_cast<char*>(&record), sizeof record)) {
      EXPECT_EQ(record.magic, kCaptureMagic);
      EXPECT_GT(record.time_ns, 0u);
      std::vector<uint8_t> frame(record.frame_size);
      EXPECT_TRUE(in.read(reinterpret_cast<char*>(frame.data()), record.frame_size));
      all.push_back({record.nic, record.direction, frame});
    }
    return all;
  }
  // Runs a WRITE of two packets and takes its completion.
  void write_run(uint32_t length = 2000) { write_run_on(pair_, length); }
  void write_run_on(Pair& pair, uint32_t length) {
    pair.a.post_send({.opcode = kWqeWrite,
                      .sges = {from_.sge(0, length)},
                      .remote_address = to_.address(),
                      .rkey = to_.key});
    ASSERT_TRUE(rig_.run_until([&] { return pair.a_cq.poll().has_value(); }));
  }

  static constexpr uint32_t kNicA = 0, kNicB = kMaxNicsPerHost;
  Rig rig_;
  Pair pair_{rig_};
  TestMr from_{*rig_.a.nic, 8192}, to_{*rig_.b.nic, 8192};
  std::string dir_;
  uint32_t session_ = 0;
};

TEST_F(CaptureTest, BothEndsSeeEveryPacketAsOnAnEthernet) {
  begin({&rig_.a.fabric_nic, &rig_.b.fabric_nic});
  write_run();
  end();
  const auto all = captured();
  ASSERT_EQ(all.size(), 6u);
  const auto count = [&](uint32_t nic, CaptureDirection direction, Operation opcode) {
    return std::count_if(all.begin(), all.end(), [&](const Captured& one) {
      return one.nic == nic && one.direction == direction && one.packet().opcode == opcode;
    });
  };
  for (const Operation opcode : {Operation::kWriteFirst, Operation::kWriteLast}) {
    EXPECT_EQ(count(kNicA, CaptureDirection::kSent, opcode), 1);
    EXPECT_EQ(count(kNicB, CaptureDirection::kReceived, opcode), 1);
  }
  EXPECT_EQ(count(kNicB, CaptureDirection::kSent, Operation::kAcknowledge), 1);
  EXPECT_EQ(count(kNicA, CaptureDirection::kReceived, Operation::kAcknowledge), 1);
  for (const Captured& one : all) {
    EXPECT_TRUE(icrc_valid(one.datagram()));
    const bool request = !opcode_is_response(one.packet().opcode);
    const FabricNic& source = request ? rig_.a.fabric_nic : rig_.b.fabric_nic;
    EXPECT_EQ(memcmp(one.frame.data() + 26, &source.ipv4_be, 4), 0);
  }
  // The packet is the same at both ends.
  EXPECT_EQ(all[0].frame, all[2].frame);
}

// The frames have the addresses used on the wire, not those that the NICs were made with; the
// hardware addresses stay.
TEST_F(CaptureTest, FramesHaveTheAddressesOfAChangedGidTable) {
  rig_.fault(rig_.b.fabric_nic, "gid-change");
  rig_.run_for(10'000);
  Pair fresh(rig_);
  begin({&rig_.a.fabric_nic, &rig_.b.fabric_nic});
  write_run_on(fresh, 2000);
  end();
  const auto all = captured();
  ASSERT_EQ(all.size(), 6u);
  const uint32_t now_be = gid_ipv4_be(rig_.b.fabric_nic, kGidRoceV2Ipv4);
  ASSERT_NE(now_be, rig_.b.fabric_nic.ipv4_be);
  uint8_t mac[6];
  nic_mac(rig_.b.fabric_nic, mac);
  for (const Captured& one : all) {
    EXPECT_TRUE(icrc_valid(one.datagram()));
    const bool request = !opcode_is_response(one.packet().opcode);
    EXPECT_EQ(memcmp(one.frame.data() + (request ? 30 : 26), &now_be, 4), 0);
    EXPECT_EQ(memcmp(one.frame.data() + (request ? 0 : 6), mac, 6), 0);
  }
}

TEST_F(CaptureTest, OneNicAlone) {
  begin({&rig_.b.fabric_nic});
  write_run();
  end();
  const auto all = captured();
  ASSERT_EQ(all.size(), 3u);
  for (const Captured& one : all) EXPECT_EQ(one.nic, kNicB);
}

TEST_F(CaptureTest, PacketsThatAFaultEatsAreNotThere) {
  begin({&rig_.a.fabric_nic, &rig_.b.fabric_nic});
  rig_.fault_set(rig_.b.fabric_nic, kDropData);
  pair_.a.post_send({.opcode = kWqeWrite,
                     .sges = {from_.sge(0, 100)},
                     .remote_address = to_.address(),
                     .rkey = to_.key});
  rig_.run_for(1'000'000);
  end();
  const auto all = captured();
  ASSERT_FALSE(all.empty());
  for (const Captured& one : all) EXPECT_EQ(one.nic, kNicA) << "b never got it";
}

TEST_F(CaptureTest, DamagedPacketsAreToldApartAtTheReceiver) {
  uint32_t requests = 0;
  rig_.net.damage = [&](const Packet& packet) {
    return !opcode_is_response(packet.opcode) && requests++ == 0;
  };
  begin({&rig_.b.fabric_nic});
  write_run();
  end();
  const auto all = captured();
  ASSERT_FALSE(all.empty());
  EXPECT_FALSE(icrc_valid(all[0].datagram()));
  for (size_t i = 1; i < all.size(); i++) EXPECT_TRUE(icrc_valid(all[i].datagram()));
  EXPECT_EQ(rig_.b.fabric_nic.icrc_errors, 1u);
}

TEST_F(CaptureTest, EndsAndBeginsAgain) {
  begin({&rig_.a.fabric_nic});
  write_run();
  end();
  write_run();
  EXPECT_EQ(captured().size(), 3u);
  begin({&rig_.a.fabric_nic});
  write_run(100);
  end();
  EXPECT_EQ(captured().size(), 2u);
}

// The owner of the capture was killed, so it could never end the capture itself.
TEST_F(CaptureTest, EndsWithItsOwner) {
  begin({&rig_.a.fabric_nic});
  rig_.fabric->capture_pid = 0x7ffffff0;  // beyond the kernel's largest PID
  write_run();
  EXPECT_EQ(rig_.a.fabric_nic.capture, 0u);
}

TEST_F(CaptureTest, WhatCannotBeWrittenIsCounted) {
  begin({&rig_.a.fabric_nic});
  std::filesystem::remove_all(dir_);
  write_run();
  EXPECT_EQ(rig_.fabric->capture_lost, 3u);
  end();
}

}  // namespace
}  // namespace cxemu::test

// Tests the lines that a store holds of a host.
#include "net/host_entry.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace shift::net {
namespace {

std::vector<uint32_t> ips(std::initializer_list<const char*> texts) {
  std::vector<uint32_t> made;
  for (const char* text : texts) made.push_back(inet_addr(text));
  return made;
}

TEST(HostEntry, IsKeptUnderTheWholeGid) {
  wire::Gid gid;
  for (uint8_t i = 0; i < 16; i++) gid.raw[i] = static_cast<uint8_t>(0xf0 - i);
  EXPECT_EQ(host_entry_key("shift", gid), "shift:gid:f0efeeedecebeae9e8e7e6e5e4e3e2e1");
}

TEST(HostEntry, TheSameAddressesGiveTheSameLine) {
  EXPECT_EQ(host_entry_line(ips({"10.0.0.2", "9.1.1.1", "10.0.0.2", "10.0.0.1"}), false),
            "1 9.1.1.1 10.0.0.1 10.0.0.2");
  EXPECT_EQ(host_entry_line({}, true), "");
}

TEST(HostEntry, HoldsNoAddressThatNoOtherHostCanUse) {
  const auto all = ips({"0.0.0.0", "0.1.2.3", "127.0.0.1", "10.0.0.1", "223.255.255.255",
                        "224.0.0.1", "240.0.0.1", "255.255.255.255"});
  EXPECT_EQ(host_entry_line(all, false), "1 10.0.0.1 223.255.255.255");
  EXPECT_EQ(host_entry_line(all, true), "1 10.0.0.1 127.0.0.1 223.255.255.255");
}

TEST(HostEntry, ALineIsBounded) {
  std::vector<uint32_t> many;
  for (uint32_t i = 0; i < 100; i++) many.push_back(htonl(0xc8c8c8c8 + i));
  const std::string line = host_entry_line(many, false);
  std::vector<uint32_t> read;
  EXPECT_EQ(host_entry_parse(line, false, read), HostEntry::kGood);
  EXPECT_EQ(read, std::vector<uint32_t>(many.begin(), many.begin() + kHostAddressesMax));
  EXPECT_LE(line.size(), 2 + 16 * kHostAddressesMax);
}

TEST(HostEntry, AGoodLineIsRead) {
  std::vector<uint32_t> read = ips({"9.9.9.9"});
  EXPECT_EQ(host_entry_parse("1 10.0.0.1 192.168.255.1", false, read), HostEntry::kGood);
  EXPECT_EQ(read, ips({"9.9.9.9", "10.0.0.1", "192.168.255.1"}));
  EXPECT_EQ(host_entry_parse("1 127.0.0.1", true, read), HostEntry::kGood);
}

TEST(HostEntry, NothingElseIsBelieved) {
  std::string too_many = "1";
  for (int i = 1; i <= 17; i++) too_many += " 10.0.0." + std::to_string(i);
  const std::string bad[] = {"",
                             " ",
                             "1",
                             "1 ",
                             " 1 10.0.0.1",
                             "1  10.0.0.1",
                             "1 10.0.0.1 ",
                             "1 10.0.0.1\n",
                             "1 10.0.0.1 x",
                             "1 10.0.0",
                             "1 10.0.0.256",
                             "1 010.0.0.1",
                             "1 10.0.0.1.2",
                             "1 ::1",
                             "1 0x0a000001",
                             "1 10.0.0.1,10.0.0.2",
                             "x 10.0.0.1",
                             "-1 10.0.0.1",
                             "12345 10.0.0.1",
                             "1 127.0.0.1",
                             "1 0.0.0.0",
                             "1 224.0.0.1",
                             "1 255.255.255.255",
                             "1 10.0.0.1 239.1.1.1",
                             too_many,
                             std::string("1 10.0.0.1\0", 11),
                             std::string("1 10.0.0.1\0x", 12),
                             std::string(100000, '1'),
                             "1 " + std::string(100000, '9')};
  for (const std::string& line : bad) {
    std::vector<uint32_t> read = ips({"9.9.9.9"});
    EXPECT_EQ(host_entry_parse(line, false, read), HostEntry::kBad) << line.substr(0, 80);
    EXPECT_EQ(read, ips({"9.9.9.9"}));
  }
}

// A later release may say more, and both releases run side by side during an upgrade.
TEST(HostEntry, AnotherVersionIsNoMistake) {
  std::vector<uint32_t> read;
  for (const char* line : {"2", "2 anything", "0 10.0.0.1", "9999 x", "01 10.0.0.1"})
    EXPECT_EQ(host_entry_parse(line, false, read), HostEntry::kOtherVersion) << line;
  EXPECT_TRUE(read.empty());
}

}  // namespace
}  // namespace shift::net

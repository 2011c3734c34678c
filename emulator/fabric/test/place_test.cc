// Places of NICs: what is accepted, what is refused with its reason, and what a topology puts
// where.
#include "fabric/place.h"

#include <gtest/gtest.h>

#include <sstream>

namespace cxemu {
namespace {

TEST(PlaceTest, WordsAreCheckedOneByOne) {
  NicWords words;
  std::string error;
  ASSERT_TRUE(nic_words_parse(
      {"rate=200Mbit", "rx=off", "pci=0000:17:00.1", "numa=-1", "speed=2.5", "width=8"}, &words,
      &error))
      << error;
  EXPECT_EQ(words.rate, 25'000'000u);
  EXPECT_EQ(words.rx, 0u);
  EXPECT_EQ(words.pci, "0000:17:00.1");
  EXPECT_EQ(words.numa, -1);
  EXPECT_EQ(words.speed, 25u);
  EXPECT_EQ(words.width, 8u);
  for (const char* word : {"rate=5", "rate", "pci=17:00.0", "pci=0000:17:20.0", "pci=0000:17:00.8",
                           "pci=0000:1G:00.0", "pci=0000:17:00.00", "numa=64", "numa=x", "numa",
                           "speed=10", "speed=", "width=3", "width=", "colour=red", "heal"}) {
    EXPECT_FALSE(nic_words_parse({word}, &words, &error)) << word;
    EXPECT_TRUE(error.starts_with(std::string(word) + ": ")) << error;
  }
}

TEST(PlaceTest, ListsOfProcessors) {
  std::vector<int> cpus;
  EXPECT_TRUE(cpu_list_parse("0-2,8,10-11", &cpus));
  EXPECT_EQ(cpus, (std::vector<int>{0, 1, 2, 8, 10, 11}));
  for (const char* text : {"", "3-1", "1,1", "0-5,3", "a", "1-", "-1", "0-9999", "1,,2"})
    EXPECT_FALSE(cpu_list_parse(text, &cpus)) << text;
}

constexpr char kTopology[] =
    "# two sockets, one with a switch below a switch\n"
    "socket 0 cpus=0-15\n"
    "socket 1 cpus=16-31\n"
    "switch s0 pci=0000:15:00.0 numa=1\n"
    "switch s1 pci=0000:16:00.0 under=s0\n"
    "\n"
    "nic mlx5_0 pci=0000:17:00.0 switch=s1 rate=1Gbit   # near\n"
    "nic mlx5_1 pci=0000:18:00.0 switch=s0 speed=8\n"
    "nic mlx5_2 pci=0001:01:00.0\n";

TEST(PlaceTest, ATopologySaysWhatIsAboveANic) {
  std::vector<PlacedNic> nics;
  std::string error;
  ASSERT_TRUE(topology_parse(kTopology, "x", &nics, &error)) << error;
  ASSERT_EQ(nics.size(), 3u);
  EXPECT_EQ(nics[0].bridges, "0000:15:00.0/0000:16:00.0");
  EXPECT_EQ(nics[0].words.numa, 1);
  EXPECT_EQ(nics[0].cpus, "16-31");
  EXPECT_EQ(nics[0].words.rate, 125'000'000u);
  EXPECT_EQ(nics[1].bridges, "0000:15:00.0");
  EXPECT_EQ(nics[1].words.speed, 80u);
  EXPECT_EQ(nics[2].bridges, "");
  EXPECT_EQ(nics[2].cpus, "0-15") << "node 0, where nothing else is said";
}

TEST(PlaceTest, WrongTopologiesAreRefusedWithTheirLine) {
  const struct {
    const char *text, *error;
  } kWrong[] = {
      {"", "x: has no NIC"},
      {"card mlx5_0\n", "x:1: card"},
      {"nic mlx5_8\n", "x:1: mlx5_8"},
      {"nic mlx5_0\n\nnic mlx5_0\n", "x:3: mlx5_0: stands there twice"},
      {"nic mlx5_1\n", "x: has no mlx5_0"},
      {"nic mlx5_0 switch=s pci=0000:17:00.0\n", "x:1: switch=s: no such switch"},
      {"switch s pci=0000:15:00.0\nnic mlx5_0 switch=s\n", "x:2: mlx5_0: below a switch"},
      {"switch s under=t pci=0000:15:00.0\n", "x:1: under=t"},
      {"switch s numa=1\n", "x:1: switch"},
      {"switch s pci=0000:15:00.0 rate=1Mbit\n", "x:1: switch"},
      {"socket 0 cpus=5-1\n", "x:1: socket"},
      {"socket a cpus=1\n", "x:1: socket"},
      {"nic mlx5_0 pci=0000:17:00.0\nnic mlx5_1 pci=0000:17:00.0\n", "x: 0000:17:00.0: is given"},
      {"switch s pci=0000:15:00.0\nnic mlx5_0 pci=0000:15:00.0\nnic mlx5_1 switch=s "
       "pci=0000:16:00.0\n",
       "x: 0000:15:00.0: is a switch's"},
  };
  for (const auto& wrong : kWrong) {
    std::vector<PlacedNic> nics;
    std::string error;
    EXPECT_FALSE(topology_parse(wrong.text, "x", &nics, &error)) << wrong.text;
    EXPECT_TRUE(error.starts_with(wrong.error)) << error;
  }
}

TEST(PlaceTest, SwitchesCannotBeStackedBeyondTheRoom) {
  std::ostringstream text;
  text << "switch s0 pci=0000:10:00.0\n";
  for (int i = 1; i < 12; i++)
    text << "switch s" << i << " pci=0000:1" << std::hex << i << std::dec << ":00.0 under=s"
         << i - 1 << "\n";
  std::vector<PlacedNic> nics;
  std::string error;
  EXPECT_FALSE(topology_parse(text.str(), "x", &nics, &error));
  EXPECT_NE(error.find("too many switches"), std::string::npos) << error;
}

}  // namespace
}  // namespace cxemu

// Runs the corpus through the targets without a fuzzer, so that what was found once stays fixed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace cxemu::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;
using Target = void (*)(std::span<const uint8_t>);

size_t replay(const char* name, Target target) {
  size_t count = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::filesystem::path(CXEMU_FUZZ_CORPUS) / name)) {
    std::ifstream stream(file.path(), std::ios::binary);
    const Bytes bytes{std::istreambuf_iterator<char>(stream), {}};
    SCOPED_TRACE(file.path().string());
    target(bytes);
    count++;
  }
  return count;
}

void random_inputs(Target target) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; i++) {
    Bytes bytes(random() % 600);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    target(bytes);
  }
}

TEST(FuzzReplay, Packets) {
  EXPECT_GT(replay("packets", packets), 0u);
  random_inputs(packets);
}
TEST(FuzzReplay, Commands) {
  EXPECT_GT(replay("commands", commands), 0u);
  random_inputs(commands);
}
TEST(FuzzReplay, Wqes) {
  EXPECT_GT(replay("wqes", wqes), 0u);
  random_inputs(wqes);
}

}  // namespace
}  // namespace cxemu::fuzz

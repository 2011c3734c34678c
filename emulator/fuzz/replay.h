// Runs a corpus, and some random inputs, through a target without a fuzzer, so that what was found
// once stays fixed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <vector>

namespace fuzzing {

using Target = void (*)(std::span<const uint8_t>);

// `corpus` is a folder with one input in each file.
inline void replay(const std::filesystem::path& corpus, Target target, int random_inputs = 200) {
  using Bytes = std::vector<uint8_t>;
  size_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(corpus)) {
    std::ifstream stream(file.path(), std::ios::binary);
    const Bytes bytes{std::istreambuf_iterator<char>(stream), {}};
    SCOPED_TRACE(file.path().string());
    target(bytes);
    count++;
  }
  EXPECT_GT(count, 0u) << corpus;
  std::mt19937_64 random(1);
  for (int i = 0; i < random_inputs; i++) {
    Bytes bytes(random() % 600);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    target(bytes);
  }
}

}  // namespace fuzzing

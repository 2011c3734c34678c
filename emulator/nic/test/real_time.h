// What tests in real time share, where engines and carriers run over sockets.
#pragma once

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "rig.h"

namespace cxemu::test {

// Waits for `done` while other threads work. Returns false when it did not happen in a very long
// time.
inline bool eventually(const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

struct Collect final : FrameSink {
  void frame_arrived(uint32_t src, uint32_t dst, const uint8_t* packet, size_t size,
                     bool corrupt) override {
    frames.push_back({src, dst, {packet, packet + size}, corrupt});
  }
  std::vector<MemoryNet::Frame> frames;
};

}  // namespace cxemu::test

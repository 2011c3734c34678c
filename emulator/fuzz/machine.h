// A NIC without a machine around it: an engine core in virtual time, whose packets go nowhere and
// come from the input.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "nic/engine_core.h"

namespace cxemu::fuzz {

class StillClock final : public Clock {
 public:
  uint64_t now_ns() override { return now_ns_; }
  void advance(uint64_t ns) { now_ns_ += ns; }

 private:
  uint64_t now_ns_ = 1'000'000'000;
};

struct Frame {
  uint32_t src, dst;
  std::vector<uint8_t> bytes;
};

// Packets that the process sends to itself arrive; all others are dropped.
class LoopCarrier final : public Carrier {
 public:
  explicit LoopCarrier(int own_slot) : own_slot_(own_slot) {}

  uint8_t* reserve(int slot, size_t size) override {
    if (slot == own_slot_ && queue_.size() > 256) return nullptr;
    reserved_ = slot;
    // Each packet has its own buffer, so that a sanitizer detects writes beyond its end.
    buffer_ = std::vector<uint8_t>(size);
    return buffer_.data();
  }
  void commit(uint32_t src, uint32_t dst, size_t size, bool) override {
    buffer_.resize(size);
    if (reserved_ == own_slot_) queue_.push_back({src, dst, std::move(buffer_)});
  }
  bool flush() override { return false; }
  Received receive(FrameSink& sink, size_t) override {
    const bool any = !queue_.empty();
    for (size_t count = queue_.size(); count > 0; count--) {
      const Frame frame = std::move(queue_.front());
      queue_.pop_front();
      sink.frame_arrived(frame.src, frame.dst, frame.bytes.data(), frame.bytes.size(), false);
    }
    return {any, true};
  }
  void address_open(uint32_t) override {}
  void address_close(uint32_t) override {}
  int wait_fd() const override { return -1; }
  void abandon() override {}

  void arrive(Frame frame) { queue_.push_back(std::move(frame)); }
  void clear() { queue_.clear(); }

 private:
  const int own_slot_;
  int reserved_ = 0;
  std::vector<uint8_t> buffer_;
  std::deque<Frame> queue_;
};

class NoEvents final : public EventSink {
 public:
  void completion(uint64_t, int) override {}
  void async_event(ibv_event_type, uint64_t) override {}
};

}  // namespace cxemu::fuzz

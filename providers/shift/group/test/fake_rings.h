// Work queues in memory that can be read back, for tests of the journals' notes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "group/journal.h"

namespace shift::group {

// A request with its own copies of all that it points to.
struct Posted {
  ibv_send_wr wr{};
  std::vector<ibv_sge> sges;
  std::vector<uint8_t> bytes;  // of an inline request

  explicit Posted(const ibv_send_wr& from)
      : wr(from), sges(from.sg_list, from.sg_list + from.num_sge) {
    wr.next = nullptr;
    if (!(wr.send_flags & IBV_SEND_INLINE)) return;
    for (const ibv_sge& sge : std::exchange(sges, {})) {
      const auto* at = reinterpret_cast<const uint8_t*>(sge.addr);
      bytes.insert(bytes.end(), at, at + sge.length);
    }
  }
  // Like mlx5, the queue leaves out SGEs without bytes.
  std::vector<ibv_sge> full_sges() const {
    std::vector<ibv_sge> full;
    std::copy_if(sges.begin(), sges.end(), std::back_inserter(full),
                 [](const ibv_sge& sge) { return sge.length != 0; });
    return full;
  }
  uint32_t blocks() const { return 1 + static_cast<uint32_t>(sges.size() + bytes.size() / 16) / 3; }
};

class FakeRings {
 public:
  // The queues keep the last `slots` requests and receives.
  FakeRings(uint32_t slots, bool all_signaled) : slots_(slots), all_signaled_(all_signaled) {}

  void post(const ibv_send_wr& wr) {
    sends_.emplace_back(wr);
    end_ += sends_.back().blocks();
  }
  void take_back(size_t count) {
    for (; count > 0; count--) {
      end_ -= sends_.back().blocks();
      sends_.pop_back();
    }
  }
  void post(const ibv_recv_wr& wr) { receives_.emplace_back(wr.sg_list, wr.sg_list + wr.num_sge); }
  const Posted& send(uint64_t position) const { return sends_[position]; }
  const std::vector<ibv_sge>& receive(uint64_t position) const { return receives_[position]; }

  RingReader reader() {
    static constexpr WorkRingTable kTable = {
        sizeof(WorkRingTable),
        [](ibv_device*) { return true; },
        [](ibv_qp*, WorkRings*) { return true; },
        [](const WorkRings* rings) { return of(rings).end_ & 0xffff; },
        [](const WorkRings* rings, uint32_t end, const SentHint* hint, const SentRequest* to) {
          return of(rings).send_before(end, *hint, *to);
        },
        [](const WorkRings* rings, uint32_t age, ibv_recv_wr* wr, ibv_sge* sges, uint32_t most) {
          return of(rings).receive_of(age, wr, sges, most);
        },
        [](const WorkRings*) {}};
    RingReader reader{&kTable, {}};
    reader.rings.sends = reinterpret_cast<uint8_t*>(this);
    return reader;
  }

  std::set<uint64_t> unreadable;  // positions of requests and of receives

 private:
  static const FakeRings& of(const WorkRings* rings) {
    return *reinterpret_cast<const FakeRings*>(rings->sends);
  }
  // Finds the request by where it ends; a queue of 16 bits has more than one such place.
  std::optional<size_t> ending_at(uint32_t end) const {
    uint32_t at = end_;
    for (size_t i = sends_.size(); i > 0 && sends_.size() - i < slots_; i--) {
      if ((at & 0xffff) == (end & 0xffff)) return i - 1;
      at -= sends_[i - 1].blocks();
    }
    return std::nullopt;
  }
  uint32_t send_before(uint32_t end, const SentHint& hint, const SentRequest& to) const {
    const auto found = ending_at(end);
    if (!found || unreadable.contains(*found)) return 0;
    const Posted& posted = sends_[*found];
    const bool is_signaled = all_signaled_ || posted.wr.send_flags & IBV_SEND_SIGNALED;
    EXPECT_EQ(hint.opcode, static_cast<uint32_t>(posted.wr.opcode));
    EXPECT_EQ(hint.is_signaled, is_signaled);
    const auto full = posted.full_sges();
    EXPECT_LE(full.size(), to.max_sge);
    EXPECT_LE(posted.bytes.size(), to.max_inline);
    *to.wr = posted.wr;
    to.wr->send_flags = posted.bytes.empty() ? 0 : IBV_SEND_INLINE;
    to.wr->sg_list = to.sges;
    to.wr->num_sge = static_cast<int>(full.size());
    std::copy(full.begin(), full.end(), to.sges);
    if (!posted.bytes.empty()) {
      to.wr->num_sge = 1;
      to.sges[0] = {reinterpret_cast<uintptr_t>(to.inline_data),
                    static_cast<uint32_t>(posted.bytes.size()), 0};
      std::copy(posted.bytes.begin(), posted.bytes.end(), to.inline_data);
    }
    return posted.blocks();
  }
  bool receive_of(uint32_t age, ibv_recv_wr* wr, ibv_sge* sges, uint32_t most) const {
    if (age >= slots_ || age >= receives_.size()) return false;
    const size_t position = receives_.size() - 1 - age;
    if (unreadable.contains(position)) return false;
    int count = 0;
    for (const ibv_sge& sge : receives_[position]) {
      if (sge.length != 0) sges[count++] = sge;
    }
    EXPECT_LE(static_cast<uint32_t>(count), most);
    *wr = {0, nullptr, sges, count};
    return true;
  }

  const size_t slots_;
  const bool all_signaled_;
  uint32_t end_ = 0xfff0;  // the number of a block has 16 bits
  std::vector<Posted> sends_;
  std::vector<std::vector<ibv_sge>> receives_;
};

}  // namespace shift::group

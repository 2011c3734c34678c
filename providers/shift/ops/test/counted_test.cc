// In the modes exact and auto the packets of each request are counted as it is posted, whether the
// journal copies the request or makes a note of it.
#include <algorithm>
#include <deque>
#include <vector>

#include "group/test/readable.h"
#include "ops/builder.h"
#include "ops/post_slow.h"
#include "ops/test/built.h"
#include "ops/test/queue_pairs.h"

namespace shift::ops {
namespace {

using group::ReadableQueues;
using group::Reading;

constexpr uint32_t kMtu = 256;

// What the standard says (IBA 9.7.3.1): an atomic has one packet, as has a message without bytes.
uint32_t packets_of(const Built& r) {
  if (group::is_atomic(r.wr.opcode)) return 1;
  size_t length = r.inline_data.size();
  for (const ibv_sge& sge : r.sges) length += sge.length;
  return static_cast<uint32_t>(std::max<size_t>(1, (length + kMtu - 1) / kMtu));
}

class Counted : public QueuePairs, public ::testing::WithParamInterface<bool> {
 protected:
  Counted() {
    group_ = world_.make_group(cq_);
    group_->mode = Mode::kAuto;
    if (is_noted()) ReadableQueues::give_to(*group_);
    group_->life_begin();
    group_->real_ex = &real_.ex;
    install_builder(*group_);
    journal().count_packets(kMtu);
    journal().start_counts_at(0, 0, UINT32_MAX - 50);
    counted_ = journal().packets();
  }
  static bool is_noted() { return GetParam(); }
  group::SendJournal& journal() { return group_->send.journal; }

  void make_hot() {
    std::lock_guard lock(group_->send.mutex);
    group_->send.bias.adopt(&group_->send);
  }
  // So many requests, in one call. The NIC completes all of them before the next call.
  void post(uint32_t count) {
    std::vector<Built>& requests = posted_.emplace_back();
    for (; count > 0; count--) requests.push_back(random_request(random_, ++id_));
    for (size_t i = 0; i < requests.size(); i++) {
      Built& r = requests[i];
      r.wr.send_flags |= IBV_SEND_SIGNALED;
      if (!r.inline_data.empty()) {
        r.wr.send_flags |= IBV_SEND_INLINE;
        r.sges = {{reinterpret_cast<uintptr_t>(r.inline_data.data()),
                   static_cast<uint32_t>(r.inline_data.size()), 0}};
        r.inline_data.clear();
      }
      r.wr.sg_list = r.sges.data();
      r.wr.num_sge = static_cast<int>(r.sges.size());
      r.wr.next = i + 1 < requests.size() ? &requests[i + 1].wr : nullptr;
      counted_ += packets_of(r);
    }
    const auto call = is_noted() ? post_send_noted_counted : post_send_counted;
    ibv_send_wr* bad;
    ASSERT_EQ(call(group_->handle(), &requests[0].wr, &bad), 0);
    group_->counters.done[0] += requests.size();
  }
  // A batch, which is refused or called off in some cases.
  void build_batch(uint32_t count) {
    std::vector<Built> requests;
    requests.reserve(count);
    uint32_t packets = 0;
    ibv_wr_start(&group_->qp);
    for (; count > 0; count--) {
      Built& r = requests.emplace_back(random_request(random_, ++id_));
      r.wr.send_flags |= IBV_SEND_SIGNALED;
      build(&group_->qp, r, random_);
      packets += packets_of(r);
    }
    if (random_.chance(10)) return ibv_wr_abort(&group_->qp);
    real_.error = random_.chance(10) && group_->send.build.fast ? ENOMEM : 0;
    ASSERT_EQ(ibv_wr_complete(&group_->qp), real_.error);
    if (real_.error != 0) return;
    counted_ += packets;
    group_->counters.done[0] += requests.size();
  }

  Random random_;
  FakeBuilder real_;
  uint64_t id_ = 0;
  uint32_t counted_ = 0;
  std::deque<std::vector<Built>> posted_;  // the NIC's queue knows where their inline data lies
};
INSTANTIATE_TEST_SUITE_P(, Counted, ::testing::Bool(),
                         [](const auto& is_noted) { return is_noted.param ? "Notes" : "Copies"; });

TEST_P(Counted, WhatIsPosted) {
  for (int round = 0; round < 300; round++) {
    ASSERT_NO_FATAL_FAILURE(post(1 + random_.below(4)));
    ASSERT_EQ(journal().packets(), counted_) << "round " << round;
    ASSERT_EQ(journal().is_noting(), is_noted());
  }
}

TEST_P(Counted, WhatIsBuilt) {
  make_hot();
  for (int round = 0; round < 300; round++) {
    ASSERT_NO_FATAL_FAILURE(build_batch(1 + random_.below(4)));
    ASSERT_EQ(journal().packets(), counted_) << "round " << round;
  }
  EXPECT_EQ(real_.started, 300) << "on the hot path";
}

// Each batch is begun while another thread has the queue, so it goes the slow way to the NIC.
TEST_P(Counted, WhatIsBuiltTheSlowWay) {
  for (int round = 0; round < 100; round++) {
    group_->send.bias.set_shared();
    ASSERT_NO_FATAL_FAILURE(build_batch(1 + random_.below(4)));
    ASSERT_EQ(journal().packets(), counted_) << "round " << round;
  }
  EXPECT_EQ(real_.started, 0);
}

// What waits for another path is counted as well, and in what was noted the same packets are found
// by what the NIC's queue tells.
TEST_P(Counted, WhatIsParked) {
  ASSERT_NO_FATAL_FAILURE(post(4));
  group::park({&group_, 1});
  ASSERT_FALSE(journal().is_noting());
  group_->counters.done[0] = 0;
  ASSERT_NO_FATAL_FAILURE(post(3));
  group_->counters.done[0] = 0;
  uint32_t packets = UINT32_MAX - 50;
  for (uint64_t i = 0; i < journal().head(); i++) packets += journal().packets_at(i);
  EXPECT_EQ(packets, counted_);
  EXPECT_EQ(journal().packets(), counted_);
}

// A queue of another format is copied from the first call on.
TEST_P(Counted, WhatCannotBeNoted) {
  ReadableQueues::sends = Reading::kWrong;
  for (int round = 0; round < 50; round++) {
    ASSERT_NO_FATAL_FAILURE(post(1 + random_.below(4)));
    ASSERT_NO_FATAL_FAILURE(build_batch(1 + random_.below(4)));
    ASSERT_EQ(journal().packets(), counted_) << "round " << round;
  }
  EXPECT_FALSE(journal().is_noting());
}

}  // namespace
}  // namespace shift::ops

// Whatever is posted on a QP of mlx5 can be read back out of its queues, however often it has gone
// round them. The stock provider writes the queues, and an emulated NIC executes them.
#include "util/work_rings.h"

#include <infiniband/mlx5dv.h>

#include "ring_requests.h"

namespace shift::mlx5 {
namespace {

// Posts random requests on one QP, and reads back those that are outstanding.
class Sends {
 public:
  Sends(Random& random, const QpShape& shape) : random_(random), owner_(shape) {}

  RingOwner& owner() { return owner_; }
  uint32_t blocks_posted() const { return blocks_posted_; }

  // Posts up to `most` requests in one call or one batch. Some older ones complete before.
  void post(uint32_t most) {
    const uint32_t room = owner_.cap().max_send_wr;
    const auto count = 1 + random_.below(std::min(most, room));
    while (outstanding_.size() + count > room) reap();
    for (uint32_t n = random_.below(4); n > 0 && !outstanding_.empty(); n--) reap();
    const size_t first = outstanding_.size();
    for (uint32_t i = 0; i < count; i++) {
      outstanding_.push_back(random_request(random_, owner_, next_id_++));
    }
    const uint32_t end = owner_.sends_end();
    random_.chance(50) ? post_chain(first) : post_batch(first);
    blocks_posted_ += (owner_.sends_end() - end) & 0xffff;
  }

  // Reads the newest requests back.
  void look(size_t most) {
    uint32_t end = owner_.sends_end();
    for (size_t i = outstanding_.size(); i > 0 && most > 0; i--, most--) {
      const Request& asked = *outstanding_[i - 1];
      const bool is_signaled =
          owner_.shape().all_signaled || asked.wr.send_flags & IBV_SEND_SIGNALED;
      SCOPED_TRACE(::testing::Message() << "request " << asked.wr.wr_id << " before block " << end);
      const ReadSend other(owner_, end, asked.wr.opcode, !is_signaled);
      ASSERT_EQ(other.blocks, 0u) << "the signal is not as expected";
      const ReadSend read(owner_, end, asked.wr.opcode, is_signaled);
      ASSERT_NO_FATAL_FAILURE(expect_same(asked, read));
      end -= read.blocks;
    }
  }

  void reset() {
    while (!outstanding_.empty()) reap();
    owner_.reset();
  }

 private:
  void reap() {
    ASSERT_EQ(owner_.reap(), outstanding_.front()->wr.wr_id);
    outstanding_.pop_front();
  }
  void post_chain(size_t first) {
    for (size_t i = first; i + 1 < outstanding_.size(); i++) {
      outstanding_[i]->wr.next = &outstanding_[i + 1]->wr;
    }
    // A request with too much inline data is refused, but some of its bytes get into the queue.
    uint8_t bytes[16]{};
    ibv_sge sges[2] = {{reinterpret_cast<uintptr_t>(bytes), sizeof bytes, 0},
                       {reinterpret_cast<uintptr_t>(bytes), owner_.cap().max_inline_data, 0}};
    ibv_send_wr refused{}, *bad = nullptr;
    refused.opcode = IBV_WR_RDMA_WRITE;
    refused.send_flags = IBV_SEND_INLINE;
    refused.sg_list = sges;
    refused.num_sge = 2;
    const bool adds = owner_.cap().max_send_sge > 1 && random_.chance(20);
    if (adds) outstanding_.back()->wr.next = &refused;
    ASSERT_EQ(ibv_post_send(owner_.qp(), &outstanding_[first]->wr, &bad), adds ? ENOMEM : 0);
    ASSERT_EQ(bad, adds ? &refused : nullptr);
    outstanding_.back()->wr.next = nullptr;
  }
  void post_batch(size_t first) {
    ibv_qp_ex* const qp = owner_.builder();
    if (random_.chance(10)) {  // a batch that is taken back leaves its bytes in the queue
      ibv_wr_start(qp);
      for (size_t i = first; i < outstanding_.size(); i++) build(qp, *outstanding_[i], random_);
      ibv_wr_abort(qp);
    }
    ibv_wr_start(qp);
    for (size_t i = first; i < outstanding_.size(); i++) build(qp, *outstanding_[i], random_);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
  }

  Random& random_;
  RingOwner owner_;
  std::deque<std::unique_ptr<Request>> outstanding_;
  uint64_t next_id_ = 1;
  uint32_t blocks_posted_ = 0;
};

constexpr QpShape kShapes[] = {{1, 1, 0, false},
                               {3, 1, 28, true},
                               {16, 2, 64, false},
                               {16, 4, 200, true},
                               {8, 30, 828, false}};

TEST(WorkRings, WhatIsOutstandingIsReadBack) {
  Random random;
  for (const QpShape& shape : kShapes) {
    SCOPED_TRACE(::testing::Message() << shape.depth << " requests, " << shape.max_sge << " SGEs, "
                                      << shape.max_inline << " bytes inline");
    Sends sends(random, shape);
    for (int step = 0; step < 800; step++) {
      if (step % 300 == 299) sends.reset();
      ASSERT_NO_FATAL_FAILURE(sends.post(5));
      ASSERT_NO_FATAL_FAILURE(sends.look(SIZE_MAX));
    }
    EXPECT_GT(sends.blocks_posted(), 10 * sends.owner().rings().send_blocks);
  }
}

// The NIC numbers the blocks with 16 bits.
TEST(WorkRings, TheNumbersOfBlocksWrapAround) {
  Random random;
  Sends sends(random, {32, 4, 200, false});
  while (sends.blocks_posted() < 0x10000 + 500) {
    ASSERT_NO_FATAL_FAILURE(sends.post(16));
    ASSERT_NO_FATAL_FAILURE(sends.look(3));
  }
}

TEST(WorkRings, ReceivesAreReadBack) {
  Random random;
  for (const QpShape& shape : {QpShape{1, 1, 0, false}, QpShape{16, 3, 0, false},
                               QpShape{64, 4, 0, false}, QpShape{5, 16, 0, false}}) {
    RingOwner owner(shape);
    const ibv_qp_cap& cap = owner.cap();
    std::deque<std::vector<ibv_sge>> outstanding;
    for (uint32_t posted = 0; posted < (shape.depth == 64 ? 0x10000 + 200 : 3000);) {
      const uint32_t count = 1 + random.below(std::min(8u, cap.max_recv_wr));
      while (outstanding.size() + count > cap.max_recv_wr) {
        owner.reap();
        outstanding.pop_front();
      }
      std::vector<ibv_recv_wr> chain(count);
      for (uint32_t i = 0; i < count; i++) {
        auto& sges = outstanding.emplace_back(random_sges(random, cap.max_recv_sge));
        chain[i] = {posted++, i + 1 < count ? &chain[i + 1] : nullptr, sges.data(),
                    static_cast<int>(sges.size())};
      }
      ibv_recv_wr* bad;
      ASSERT_EQ(ibv_post_recv(owner.qp(), chain.data(), &bad), 0);
      for (uint32_t age = 0; age < std::min<size_t>(outstanding.size(), 16); age++) {
        ibv_recv_wr wr;
        std::vector<ibv_sge> sges(cap.max_recv_sge);
        ASSERT_TRUE(
            RingOwner::table().receive(&owner.rings(), age, &wr, sges.data(), cap.max_recv_sge));
        ASSERT_NO_FATAL_FAILURE(
            expect_same_sges(outstanding[outstanding.size() - 1 - age], wr.sg_list, wr.num_sge));
      }
    }
    ibv_recv_wr wr;
    ibv_sge sges[32];
    EXPECT_FALSE(
        RingOwner::table().receive(&owner.rings(), owner.rings().receive_slots, &wr, sges, 32))
        << "the queue has no such slot";
    while (!outstanding.empty()) {
      owner.reap();
      outstanding.pop_front();
    }
  }
}

TEST(WorkRings, AReceiveWithMoreSgesThanThereIsRoomForIsNotRead) {
  RingOwner owner({4, 3, 0, false});
  ibv_sge three[3] = {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}};
  ibv_recv_wr posted{1, nullptr, three, 3}, wr, *bad;
  ASSERT_EQ(ibv_post_recv(owner.qp(), &posted, &bad), 0);
  ibv_sge sges[3];
  EXPECT_FALSE(RingOwner::table().receive(&owner.rings(), 0, &wr, sges, 2));
  EXPECT_TRUE(RingOwner::table().receive(&owner.rings(), 0, &wr, sges, 3));
}

TEST(WorkRings, AQpThatOnlyReceivesIsReadable) {
  RingOwner owner({4, 1, 0, false, false});
  ASSERT_EQ(owner.cap().max_send_wr, 0u);
  ibv_sge one{1, 2, 3}, sge;
  ibv_recv_wr posted{1, nullptr, &one, 1}, wr, *bad;
  ASSERT_EQ(ibv_post_recv(owner.qp(), &posted, &bad), 0);
  EXPECT_TRUE(RingOwner::table().receive(&owner.rings(), 0, &wr, &sge, 1));
  EXPECT_EQ(sge.length, 2u);
  EXPECT_EQ(ReadSend(owner, owner.sends_end(), IBV_WR_SEND, false).blocks, 0u);
}

TEST(WorkRings, ARequestOfAnotherKindIsNotRead) {
  Random random;
  RingOwner owner({16, 2, 64, false});
  for (const ibv_wr_opcode posted : kOpcodes) {
    auto request = random_request(random, owner, 1);
    while (request->wr.opcode != posted) request = random_request(random, owner, 1);
    const bool is_signaled = request->wr.send_flags & IBV_SEND_SIGNALED;
    ibv_send_wr* bad;
    ASSERT_EQ(ibv_post_send(owner.qp(), &request->wr, &bad), 0);
    for (int asked = 0; asked <= IBV_WR_DRIVER1 + 1; asked++) {
      const ReadSend read(owner, owner.sends_end(), static_cast<ibv_wr_opcode>(asked), is_signaled);
      // The NIC has one operation for both things that happen to a window.
      const bool is_same =
          asked == posted || (posted == IBV_WR_LOCAL_INV && asked == IBV_WR_BIND_MW);
      EXPECT_EQ(read.blocks != 0, is_same) << posted << " read as " << asked;
    }
    owner.reap();
  }
}

TEST(WorkRings, NothingIsReadFromAnEmptyQueue) {
  RingOwner owner({16, 2, 64, false});
  for (const ibv_wr_opcode opcode : kOpcodes) {
    EXPECT_EQ(ReadSend(owner, owner.sends_end(), opcode, false).blocks, 0u);
  }
}

// A device and a QP of a provider that libmlx5 does not know.
TEST(WorkRings, OtherDevicesAreNotKnown) {
  struct {
    ibv_device device{};
    uint8_t rest[1024]{};
  } other;
  ibv_context context{};
  context.device = &other.device;
  ibv_qp qp{};
  qp.context = &context;
  WorkRings rings{};
  EXPECT_FALSE(RingOwner::table().knows(&other.device));
  EXPECT_FALSE(RingOwner::table().open(&qp, &rings));
  EXPECT_EQ(rings.sends, nullptr);
}

TEST(WorkRings, TheTableTellsItsSize) {
  RingOwner owner({1, 1, 0, false});
  EXPECT_EQ(RingOwner::table().size, sizeof(WorkRingTable));
  EXPECT_TRUE(RingOwner::table().knows(owner.qp()->context->device));
}

}  // namespace
}  // namespace shift::mlx5

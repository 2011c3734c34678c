// A queue of mlx5 is read backwards, so what a program sends inline may look like the beginning of
// a request. Such a request may be lost to the reader, but it must never be taken for another one.
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <cstring>
#include <functional>

#include "ring_requests.h"

namespace shift::mlx5 {
namespace {

constexpr uint32_t kBlock = WorkRings::kBlock;
// A SEND's data lies behind its control segment and a word with its length.
constexpr uint32_t kDataAt = 16 + 4;

// What a control segment says.
struct Control {
  uint32_t block, opcode, qpn, segments, flags;

  void put(uint8_t* to) const {
    const uint32_t words[4] = {(block & 0xffff) << 8 | opcode, qpn << 8 | segments, flags, 0};
    for (int i = 0; i < 4; i++) {
      const uint32_t big = htobe32(words[i]);
      std::memcpy(to + 4 * i, &big, 4);
    }
  }
};

class Imitations : public ::testing::Test {
 protected:
  void send(std::vector<uint8_t> data) {
    ibv_sge sge{reinterpret_cast<uintptr_t>(data.data()), static_cast<uint32_t>(data.size()), 0};
    ibv_send_wr wr{}, *bad;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ASSERT_EQ(ibv_post_send(owner_.qp(), &wr, &bad), 0);
    sent_ = data;
  }
  ReadSend newest() { return ReadSend(owner_, owner_.sends_end(), IBV_WR_SEND, true); }
  void expect_read(const ReadSend& read, uint32_t blocks) {
    ASSERT_EQ(read.blocks, blocks);
    ASSERT_EQ(read.wr.num_sge, 1);
    ASSERT_EQ(read.sges[0].length, sent_.size());
    ASSERT_TRUE(std::equal(sent_.begin(), sent_.end(), read.data.begin()));
  }
  void go_on() { owner_.reap(); }
  // So many bytes fill that many blocks.
  static uint32_t room_of(uint32_t blocks) { return blocks * kBlock - kDataAt; }

  RingOwner owner_{{8, 1, 300, false}};
  std::vector<uint8_t> sent_;
};

TEST_F(Imitations, DataThatLooksLikeARequestIsNotTakenForOne) {
  constexpr uint32_t kSignal = MLX5_WQE_CTRL_CQ_UPDATE;
  constexpr uint32_t kBlocks = 4;
  const uint32_t qpn = owner_.qp()->qp_num;
  const auto wrong = std::to_array<std::function<void(Control&)>>(
      {[](Control&) {}, [](Control& c) { c.block++; }, [](Control& c) { c.block += 0x100; },
       [](Control& c) { c.opcode = MLX5_OPCODE_RDMA_WRITE; }, [](Control& c) { c.qpn ^= 1; },
       [](Control& c) { c.segments += 4; }, [](Control& c) { c.flags = 0; },
       [](Control& c) { c.opcode |= 1u << 24; }});
  // Each place in the request, with the ring's end at each place of it.
  for (uint32_t lap = 0; lap < 2 * owner_.rings().send_blocks; lap++) {
    for (uint32_t at = 1; at < kBlocks; at++) {
      for (size_t i = 0; i < wrong.size(); i++) {
        SCOPED_TRACE(::testing::Message() << "block " << at << ", wrong " << i);
        std::vector<uint8_t> data(room_of(kBlocks), 0x55);
        Control control{owner_.sends_end() + at, MLX5_OPCODE_SEND, qpn, 4 * (kBlocks - at),
                        kSignal};
        wrong[i](control);
        control.put(data.data() + at * kBlock - kDataAt);
        ASSERT_NO_FATAL_FAILURE(send(data));
        const ReadSend read = newest();
        if (i == 0) {
          ASSERT_EQ(read.blocks, 0u) << "two requests could end there";
        } else {
          ASSERT_NO_FATAL_FAILURE(expect_read(read, kBlocks));
        }
        go_on();
      }
    }
    ASSERT_NO_FATAL_FAILURE(send({1}));
    ASSERT_NO_FATAL_FAILURE(expect_read(newest(), 1));
    go_on();
  }
}

// Where only the first bytes of a block are written, the rest would be that of an earlier life, in
// which a request may have begun there.
TEST_F(Imitations, AnOlderRequestBehindOneByteIsNotSeen) {
  for (const uint32_t blocks : {2u, 3u, 4u}) {
    owner_.reset();
    for (uint32_t i = 0; i < blocks; i++) {
      ASSERT_NO_FATAL_FAILURE(send({7}));
      go_on();
    }
    owner_.reset();
    ASSERT_NO_FATAL_FAILURE(send(std::vector<uint8_t>(room_of(blocks - 1) + 1, 0x55)));
    ASSERT_NO_FATAL_FAILURE(expect_read(newest(), blocks));
    go_on();
    // That byte may be the one that the older request had there.
    std::vector<uint8_t> data(room_of(blocks - 1) + 1, 0x55);
    data.back() = 0;
    owner_.reset();
    for (uint32_t i = 0; i < blocks; i++) {
      ASSERT_NO_FATAL_FAILURE(send({7}));
      go_on();
    }
    owner_.reset();
    ASSERT_NO_FATAL_FAILURE(send(data));
    ASSERT_NO_FATAL_FAILURE(expect_read(newest(), blocks));
    go_on();
  }
}

}  // namespace
}  // namespace shift::mlx5

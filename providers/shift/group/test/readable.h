// Lets the layer read the queues of a fake QP, rightly or wrongly.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>

#include "group/test/fake.h"

namespace shift::group {

// What the table says of the queues.
enum class Reading : uint8_t { kRight, kWrong, kNothing };

struct ReadableQueues {
  static inline Reading sends = Reading::kRight, receives = Reading::kRight;
  static inline int looks = 0;  // how many requests and receives were read
  static inline int resets = 0;

  static const WorkRingTable& table() {
    static constexpr WorkRingTable kTable = {
        sizeof(WorkRingTable),
        [](ibv_device*) { return true; },
        [](ibv_qp* real, WorkRings* rings) {
          rings->sends = reinterpret_cast<uint8_t*>(real);
          return true;
        },
        [](const WorkRings* rings) { return static_cast<uint32_t>(of(rings).sends.size()); },
        send_before,
        receive,
        [](const WorkRings*) { resets++; }};
    return kTable;
  }
  // The next life of the group's queues begins with notes.
  static void give_to(Group& group) {
    sends = receives = Reading::kRight;
    looks = resets = 0;
    group.reader.table = &table();
    table().open(group.real[kDefault], &group.reader.rings);
  }

 private:
  static const FakeQp& of(const WorkRings* rings) {
    return *reinterpret_cast<const FakeQp*>(rings->sends);
  }
  static uint32_t send_before(const WorkRings* rings, uint32_t end, const SentHint* hint,
                              const SentRequest* to) {
    looks++;
    if (sends == Reading::kNothing || end == 0) return 0;
    const PostedSend& posted = of(rings).sends[end - 1];
    EXPECT_EQ(hint->opcode, static_cast<uint32_t>(posted.wr.opcode));
    *to->wr = posted.wr;
    to->wr->sg_list = to->sges;
    to->wr->send_flags = 0;
    to->wr->num_sge = 0;
    if (sends == Reading::kWrong) to->wr->opcode = IBV_WR_TSO;
    for (const ibv_sge& sge : posted.sges) {
      if (sge.length != 0) to->sges[to->wr->num_sge++] = sge;
      if (is_atomic(posted.wr.opcode)) to->sges[0].length = 8;  // as mlx5 does
    }
    if (!(posted.wr.send_flags & IBV_SEND_INLINE) || to->wr->num_sge == 0) return 1;
    uint32_t length = 0;
    for (int i = 0; i < to->wr->num_sge; length += to->sges[i++].length) {
      std::memcpy(to->inline_data + length, reinterpret_cast<const void*>(to->sges[i].addr),
                  to->sges[i].length);
    }
    to->sges[0] = {reinterpret_cast<uintptr_t>(to->inline_data), length, 0};
    to->wr->num_sge = 1;
    to->wr->send_flags = IBV_SEND_INLINE;
    return 1;
  }
  static bool receive(const WorkRings* rings, uint32_t age, ibv_recv_wr* wr, ibv_sge* sges,
                      uint32_t) {
    looks++;
    const auto& posted = of(rings).recvs;
    if (receives == Reading::kNothing || age >= posted.size()) return false;
    *wr = {0, nullptr, sges, 0};
    for (const ibv_sge& sge : posted[posted.size() - 1 - age].sges) {
      if (sge.length == 0) continue;
      sges[wr->num_sge] = sge;
      if (receives == Reading::kWrong) sges[wr->num_sge].addr ^= 1;
      wr->num_sge++;
    }
    return true;
  }
};

}  // namespace shift::group

// Target: rings with arbitrary content. Decoding must stay inside the ring, and its results must
// stay within their bounds.
#include <vector>

#include "fuzz/machine.h"
#include "fuzz/target.h"
#include "nic/srq.h"
#include "nic/wqe.h"

namespace cxemu::fuzz {

namespace {

void send_ring(Input& input) {
  const uint32_t blocks = 1u << input.below(7);
  const auto index = input.take<uint16_t>();
  const uint32_t posted = 1 + input.take<uint16_t>() % blocks;
  constexpr Service kServices[] = {Service::kRc, Service::kUc, Service::kUd, Service::kXrc};
  const Service service = kServices[input.below(4)];
  std::vector<uint8_t> bytes(size_t{blocks} * 64);
  input.take(bytes.data(), bytes.size());
  const SendRing ring = {bytes.data(), blocks, service};
  SendWqe wqe;
  const WqeError error = send_wqe_decode(ring, index, posted, &wqe);
  require(wqe.blocks <= posted, "a WQE longer than what was posted");
  if (error != WqeError::kNone) return;
  require(wqe.blocks > 0, "a WQE without length");
  require(wqe.part_count <= kMaxParts && wqe.length <= kMaxMessage, "a WQE beyond its bounds");
  uint64_t length = 0;
  for (uint32_t i = 0; i < wqe.part_count; i++) {
    const DataPart& part = wqe.part[i];
    length += part.length;
    if (!part.is_inline) continue;
    require(part.length <= bytes.size(), "inline data longer than the ring");
    std::vector<uint8_t> copy(part.length);
    if (copy.empty()) continue;
    ring_copy(ring, part.address, copy.data(), part.length);
  }
  require(length == wqe.length, "a length that is not that of the parts");
}

void recv_ring(Input& input) {
  const uint32_t count = 1u << input.below(5), shift = 4 + input.below(7);
  const auto index = input.take<uint16_t>();
  std::vector<uint8_t> bytes(size_t{count} << shift);
  input.take(bytes.data(), bytes.size());
  RecvWqe wqe;
  recv_wqe_decode({bytes.data(), count, shift}, index, &wqe);
  require(wqe.part_count <= kMaxParts, "a receive of too many parts");
}

void shared_queue(Input& input) {
  const uint32_t count = 1u << input.below(5), shift = 5 + input.below(5);
  std::vector<uint8_t> bytes(size_t{count} << shift);
  input.take(bytes.data(), bytes.size());
  alignas(8) volatile uint32_t doorbell = 0;
  NoEvents events;
  const SrqConfig config = {.buffer = bytes.data(),
                            .db = &doorbell,
                            .wqe_count = count,
                            .wqe_shift = shift,
                            .user_handle = 1,
                            .pd = 1,
                            .sink = &events,
                            .cq = nullptr,
                            .uidx = 0,
                            .xrcd = 0};
  Srq srq(config, 1);
  for (int i = 0; i < 16; i++) {
    doorbell = input.take<uint32_t>();
    srq.limit_arm(input.take<uint8_t>());
    RecvWqe wqe;
    for (uint32_t takes = 0; srq.take(&wqe); takes++) {
      require(takes < count, "more entries than there are");
      require(wqe.index < count && wqe.part_count <= kMaxParts, "an entry beyond its bounds");
    }
  }
}

}  // namespace

void wqes(std::span<const uint8_t> bytes) {
  Input input(bytes);
  switch (input.below(3)) {
    case 0:
      return send_ring(input);
    case 1:
      return recv_ring(input);
    default:
      return shared_queue(input);
  }
}

}  // namespace cxemu::fuzz

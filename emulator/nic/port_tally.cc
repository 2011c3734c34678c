// The cold half of counting packets.
#include "nic/port_tally.h"

namespace cxemu {

PortTally::Numbers& PortTally::find(FabricNic& nic) {
  for (last_ = 0; last_ < all_.size(); last_++) {
    if (all_[last_].nic == &nic) return all_[last_];
  }
  all_.push_back({.nic = &nic,
                  .tx_packets = 0,
                  .tx_bytes = 0,
                  .rx_packets = 0,
                  .rx_bytes = 0,
                  .writes = 0,
                  .reads = 0,
                  .atomics = 0});
  return all_.back();
}

void PortTally::add(Numbers& numbers) {
  FabricNic& nic = *numbers.nic;
  const auto move = [](std::atomic<uint64_t>& to, uint64_t& from) {
    if (from != 0) to.fetch_add(from, std::memory_order_relaxed);
    from = 0;
  };
  const auto hw = [&](HwCounter counter) -> std::atomic<uint64_t>& {
    return nic.hw[static_cast<size_t>(counter)];
  };
  move(nic.tx_bytes, numbers.tx_bytes);
  move(nic.tx_packets, numbers.tx_packets);
  move(nic.rx_bytes, numbers.rx_bytes);
  move(nic.rx_packets, numbers.rx_packets);
  move(hw(HwCounter::kRxWriteRequests), numbers.writes);
  move(hw(HwCounter::kRxReadRequests), numbers.reads);
  move(hw(HwCounter::kRxAtomicRequests), numbers.atomics);
}

}  // namespace cxemu

// What the NICs of one process sent and received since the last pass. These are plain numbers, so
// that a packet needs no access to memory that other processes write. Once a pass they are added to
// the fabric file.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"
#include "nic/roce.h"

namespace cxemu {

class PortTally {
 public:
  void sent(FabricNic& nic, size_t bytes) {
    Numbers& numbers = of(nic);
    numbers.tx_packets++;
    numbers.tx_bytes += bytes;
  }
  void received(FabricNic& nic, Operation opcode, size_t bytes) {
    Numbers& numbers = of(nic);
    numbers.rx_packets++;
    numbers.rx_bytes += bytes;
    if (!opcode_starts_message(opcode) || opcode_is_send(opcode)) return;
    if (opcode_is_write(opcode)) {
      numbers.writes++;
    } else if (opcode == Operation::kReadRequest) {
      numbers.reads++;
    } else {
      numbers.atomics++;
    }
  }
  void flush() {
    for (Numbers& numbers : all_) {
      if ((numbers.tx_packets | numbers.rx_packets) != 0) add(numbers);
    }
  }

 private:
  struct Numbers {
    FabricNic* nic;
    uint64_t tx_packets, tx_bytes, rx_packets, rx_bytes, writes, reads, atomics;
  };

  Numbers& of(FabricNic& nic) {
    if (last_ < all_.size() && all_[last_].nic == &nic) [[likely]]
      return all_[last_];
    return find(nic);
  }
  Numbers& find(FabricNic& nic);
  static void add(Numbers& numbers);

  std::vector<Numbers> all_;
  size_t last_ = 0;
};

}  // namespace cxemu

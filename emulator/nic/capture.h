// A process's part in packet captures: it writes the packets of captured NICs, as they look on an
// Ethernet, into the capture's spool (fabric/capture.h). While no capture runs, this costs a check
// of one word per packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fabric/capture.h"
#include "fabric/fabric.h"

namespace cxemu {

class Capture {
 public:
  Capture(FabricFile& fabric, int slot) : fabric_(fabric), own_(fabric.process[slot]) {
    own_.capturing.store(0);  // the slot's previous process may have been killed
  }
  ~Capture() { abandon(); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Records a packet that a NIC sent or received, with the addresses that it travels with.
  void record(const FabricNic& nic, CaptureDirection direction, uint32_t src_ipv4_be,
              uint32_t dst_ipv4_be, const uint8_t* packet, size_t size, bool corrupt) {
    if (nic.capture.load(std::memory_order_relaxed) == 0) [[likely]]
      return;
    add(nic, direction, src_ipv4_be, dst_ipv4_be, packet, size, corrupt);
  }
  // Writes everything into the spool; called at the end of every pass.
  void flush() {
    if (used_ > 0) write_out();
  }
  // In a forked child: gives up the descriptor, which is the parent's too.
  void abandon();

 private:
  [[gnu::cold, gnu::noinline]] void add(const FabricNic& nic, CaptureDirection direction,
                                        uint32_t src_ipv4_be, uint32_t dst_ipv4_be,
                                        const uint8_t* packet, size_t size, bool corrupt);
  [[gnu::cold, gnu::noinline]] void write_out();
  void spool_open(uint32_t session);

  FabricFile& fabric_;
  FabricProcess& own_;
  uint32_t session_ = 0;  // whose spool is open
  int fd_ = -1;           // -1 during a session: the spool could not be opened
  std::unique_ptr<uint8_t[]> buffer_;
  size_t used_ = 0;
  uint32_t buffered_ = 0;  // packets
};

}  // namespace cxemu

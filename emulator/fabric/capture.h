// Packet capture: how it is switched on and off for all processes of a fabric, and the format of
// the spool, the file to which they append the packets of captured NICs.
//
// A process announces itself in FabricProcess::capturing before it reads FabricNic::capture for the
// last time, and withdraws this once its packets are in the spool. The process that ends a capture
// first clears FabricNic::capture and then looks for announced processes. All four accesses are
// sequentially consistent, so no packet is written after the end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace cxemu {

enum class CaptureDirection : uint16_t { kReceived = 1, kSent = 2 };

inline constexpr uint32_t kCaptureMagic = 0x4b434150;

// Precedes every Ethernet frame in the spool.
struct CaptureRecord {
  uint32_t magic;
  uint32_t frame_size;
  uint64_t time_ns;  // CLOCK_REALTIME
  uint32_t nic;      // index in FabricFile::nic
  CaptureDirection direction;
  uint16_t reserved;
};
static_assert(sizeof(CaptureRecord) == 24);

// Captures into the empty file `spool` (a full path): the given NICs, or all that exist now and
// later. Returns false and *error on failure, for example because another capture is running.
bool capture_begin(const Fabric& fabric, const std::string& spool,
                   const std::vector<FabricNic*>& nics, std::string* error);
// Ends the capture and waits until no process writes any more, but no longer than `patience`.
void capture_end(const Fabric& fabric, std::chrono::milliseconds patience);
// Ends a capture without waiting, when a process finds that the one that began it has died.
void capture_forget(FabricFile& fabric);

}  // namespace cxemu

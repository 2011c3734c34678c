// Packet capture: how it is switched on and off for all processes of a fabric, and the format of
// the file, the spool, to which they append the packets of captured NICs.
//
// A process announces itself in FabricProcess::capturing before it looks at FabricNic::capture for
// the last time, and takes that back once its packets are in the spool; who ends a capture first
// clears FabricNic::capture and then looks for processes that are announced. All four accesses are
// sequentially consistent, so that no packet comes behind the end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace cxemu {

enum class CaptureDirection : uint16_t { kReceived = 1, kSent = 2 };

inline constexpr uint32_t kCaptureMagic = 0x4b434150;

// In front of every Ethernet frame in the spool.
struct CaptureRecord {
  uint32_t magic;
  uint32_t frame_size;
  uint64_t time_ns;  // CLOCK_REALTIME
  uint32_t nic;      // index in FabricFile::nic
  CaptureDirection direction;
  uint16_t reserved;
};
static_assert(sizeof(CaptureRecord) == 24);

// Captures into the empty file `spool` (a full path): the given NICs, or all there are and will be.
// False and *error when it cannot be, because another capture is running, for example.
bool capture_begin(const Fabric& fabric, const std::string& spool,
                   const std::vector<FabricNic*>& nics, std::string* error);
// Ends it and waits until no process writes any more, but no longer than `patience`.
void capture_end(const Fabric& fabric, std::chrono::milliseconds patience);
// For a process that finds that whoever began the capture died: ends it without waiting.
void capture_forget(FabricFile& fabric);

}  // namespace cxemu

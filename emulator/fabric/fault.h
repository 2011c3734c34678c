// Faults of a NIC: the words that `cxemu fault` understands, and what they change.
#pragma once

#include <string>

#include "fabric/fabric.h"

namespace cxemu {

struct FaultCommand {
  enum class Kind {
    kLinkDown,
    kLinkUp,
    kKill,
    kRevive,
    kDropData,
    kDropAcks,
    kLoss,
    kDelay,
    kHeal,
  } kind;
  uint32_t value = 0;  // kLoss: packets out of a million; kDelay: microseconds
};

// "link-down", "loss=0.5" (percent: 0.5% of the packets), "delay=2.5" (milliseconds) ...
// Returns false and fills *error for anything else.
bool fault_parse(const std::string& text, FaultCommand* out, std::string* error);
void fault_apply(const Fabric&, FabricNic*, const FaultCommand&);
// "ok" or the active faults, separated by commas, in the words of fault_parse.
std::string fault_describe(const FabricNic&);

}  // namespace cxemu

// The fault rules of the NICs of one process: a copy of the rules in the fabric file, which is
// renewed when a NIC's generation changes, and their application to events. Used only for NICs with
// kRules.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"

namespace cxemu {

// What happens to a packet.
struct Verdict {
  bool drop = false, corrupt = false, duplicate = false, reorder = false;
  uint32_t delay_us = 0;
};

class RuleBook {
 public:
  explicit RuleBook(FabricFile& fabric) : fabric_(fabric) {}

  // Counts an event in every rule that it matches, and switches the NIC where a rule says so. For a
  // packet, returns what the rules decide.
  Verdict judge(FabricNic& nic, const EventTraits& event, uint64_t now_ns);

 private:
  struct Entry {
    FaultRule* rule;
    RuleCopy copy;
  };
  // A copy of one NIC's rules.
  struct Page {
    FabricNic* nic;
    uint32_t generation;
    std::vector<Entry> entries;
  };

  const Page& page_of(FabricNic& nic);

  FabricFile& fabric_;
  std::vector<Page> pages_;
};

}  // namespace cxemu

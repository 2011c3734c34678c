// The fault rules of the NICs of one process: a copy of what lies in the fabric file, made anew
// when a NIC's generation moves, and their application to events. Asked only for NICs with kRules.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"

namespace cxemu {

// What becomes of a packet.
struct Verdict {
  bool drop = false, corrupt = false, duplicate = false, reorder = false;
  uint32_t delay_us = 0;
};

class RuleBook {
 public:
  explicit RuleBook(FabricFile& fabric) : fabric_(fabric) {}

  // Counts an event in every rule that it matches, switches the NIC where a rule says so, and tells
  // what the rules say about it, if it is a packet.
  Verdict judge(FabricNic& nic, const EventTraits& event, uint64_t now_ns);

 private:
  struct Entry {
    FaultRule* rule;
    RuleCopy copy;
  };
  // What is known of one NIC.
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

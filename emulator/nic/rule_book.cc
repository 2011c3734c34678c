// Applies fault rules.
#include "nic/rule_book.h"

#include <algorithm>

#include "fabric/fault.h"

namespace cxemu {

Verdict RuleBook::judge(FabricNic& nic, const EventTraits& event, uint64_t now_ns) {
  Verdict verdict;
  for (const Entry& entry : page_of(nic).entries) {
    const RuleSpec& spec = entry.copy.spec;
    if (!rule_matches(spec, event)) continue;
    bool ended;
    const bool struck = rule_strike(*entry.rule, spec, &ended);
    if (struck) {
      switch (spec.effect) {
        case FaultEffect::kDrop:
          verdict.drop = true;
          break;
        case FaultEffect::kDelay:
          verdict.delay_us = std::max(verdict.delay_us, spec.value);
          break;
        case FaultEffect::kReorder:
          verdict.reorder = true;
          break;
        case FaultEffect::kDuplicate:
          verdict.duplicate = true;
          break;
        case FaultEffect::kCorrupt:
          verdict.corrupt = true;
          break;
        case FaultEffect::kSwitch:
          fault_switch(fabric_, nic, spec, now_ns);
          break;
      }
    }
    if (ended) rule_finish(fabric_, nic, *entry.rule, entry.copy);
  }
  return verdict;
}

const RuleBook::Page& RuleBook::page_of(FabricNic& nic) {
  auto page =
      std::find_if(pages_.begin(), pages_.end(), [&](const Page& p) { return p.nic == &nic; });
  const uint32_t generation = nic.generation.load(std::memory_order_acquire);
  if (page == pages_.end()) {
    page = pages_.insert(page, {&nic, generation - 1, {}});
  }
  if (page->generation == generation) return *page;
  // If a rule changes during the copy, the generation moves after it, and the next event copies
  // again.
  page->generation = generation;
  page->entries.clear();
  RuleCopy copy;
  for (FaultRule& rule : nic.rules) {
    if (rule_read(rule, &copy)) page->entries.push_back({&rule, copy});
  }
  return *page;
}

}  // namespace cxemu

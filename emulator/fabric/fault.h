// Faults of a NIC: the words that `cxemu fault` and scripts accept, and what they change.
//
//   FAULT[@TICK=N] [MODIFIER...]
//
// A fault is a switch of the NIC (link-down, drop-acks ...), or a rule about packets (loss=1,
// reorder ...). With modifiers, drop-data and drop-acks become rules. With @TICK=N a switch is
// delayed until the NIC's N-th packet, work request or completion.
#pragma once

#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace cxemu {

struct FaultCommand {
  enum class Kind : uint16_t {
    kLinkDown,
    kLinkUp,
    kKill,
    kRevive,
    kDropData,
    kDropAcks,
    kGidChange,
    kGidRestore,
    kHeal,
    kFlap,
    kSlowCommands,
    kHangCommands,
    kSlow,
    // Of a whole host (host_fault.h).
    kCut,
    kPowerOff,
    kPowerOn,
    // All kinds from here on are rules about packets.
    kLoss,
    kDelay,
    kReorder,
    kDuplicate,
    kCorrupt,
  } kind = Kind::kHeal;
  // packets per million; for kDelay and kSlowCommands: microseconds; for kGidChange: a GidChange;
  // for kSlow: the millionths of the rate that are left
  uint32_t value = 0;
  struct {
    uint32_t down_us = 0, up_us = 0, times = 0;
  } flap;
  bool triggered = false;  // `rule` says when it happens
  bool selective = false;  // a modifier was given
  RuleSpec rule;           // which packets, which event
  std::string text;        // as written
};

// Parses faults with their modifiers, and checks all that can be checked without changing anything.
// Returns false and a one-line *error if they are wrong. Peers must exist in the fabric.
bool faults_parse(FabricFile&, const std::vector<std::string>& words, uint32_t seed,
                  std::vector<FaultCommand>* out, std::string* error);
// Parses one fault, its words separated by spaces.
bool fault_parse(FabricFile&, const std::string& text, FaultCommand* out, std::string* error);

// `now_ns`: CLOCK_MONOTONIC. Returns false and *error if the NIC's rule table is full, or for a
// fault that the NIC cannot have now.
bool fault_apply(FabricFile&, FabricNic&, const FaultCommand&, uint64_t now_ns, std::string* error);
// Switches the NIC as a rule with FaultEffect::kSwitch demands that has reached its event.
void fault_switch(FabricFile&, FabricNic&, const RuleSpec&, uint64_t now_ns);
// Ends a rule that affected its last event, unless another process has ended it.
void rule_finish(FabricFile&, FabricNic&, FaultRule&, const RuleCopy&);

// "ok" or the active faults, separated by commas, in the words of faults_parse.
std::string fault_describe(const FabricFile&, const FabricNic&, uint64_t now_ns);
std::string rule_describe(const FabricFile&, const RuleSpec&);
// Whether a rule of `nic` always drops all requests, or all responses, to and from the peer. TCP is
// then cut as well.
bool rules_cut_peer(const FabricNic& nic, uint32_t peer_ipv4_be);

}  // namespace cxemu

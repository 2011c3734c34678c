// Applies faults to NICs.
#include <string>

#include "fabric/fault.h"
#include "fabric/fault_words.h"
#include "fabric/gid.h"

namespace cxemu {
namespace {

using Kind = FaultCommand::Kind;

bool rules_any(const FabricNic& nic) {
  RuleCopy copy;
  for (const FaultRule& rule : nic.rules)
    if (rule_read(rule, &copy)) return true;
  return false;
}

// Clears kRules when the table is empty. A rule that is armed meanwhile enters the table before its
// bit is set: either the second check sees it, or the bit is set after the clearing.
void rules_settle(FabricNic& nic) {
  if (rules_any(nic)) return;
  nic.faults.fetch_and(~kRules);
  if (rules_any(nic)) nic.faults.fetch_or(kRules);
}

void rules_end(FabricNic& nic) {
  RuleCopy copy;
  for (FaultRule& rule : nic.rules)
    if (rule_read(rule, &copy)) rule_end(rule, copy.state);
}

void link_down(FabricNic& nic) {
  if ((nic.faults.fetch_or(kLinkDown) & kLinkDown) == 0)
    nic.link_downed.fetch_add(1, std::memory_order_relaxed);
}

void gids_change(FabricNic& nic, GidChange change) {
  uint32_t gids = nic.gids.load();
  while (!nic.gids.compare_exchange_weak(gids, gids_changed(gids, change))) {
  }
  nic.faults.fetch_or(kGidMoved);
}

void flap_start(FabricNic& nic, const FaultCommand& fault, uint64_t now_ns) {
  nic.faults.fetch_and(~kFlap);
  nic.flap.down_us.store(fault.flap.down_us, std::memory_order_relaxed);
  nic.flap.up_us.store(fault.flap.up_us, std::memory_order_relaxed);
  nic.flap.times.store(fault.flap.times, std::memory_order_relaxed);
  nic.flap.edges_told.store(0, std::memory_order_relaxed);
  nic.flap.start_ns.store(now_ns, std::memory_order_relaxed);
  nic.faults.fetch_or(kFlap);
}

bool host_is_off(const FabricFile& fabric, const FabricNic& nic) {
  return fabric.host_off[nic.host].load() != 0;
}

void heal(FabricFile& fabric, FabricNic& nic) {
  // Clear the bits first: a rule that is armed meanwhile sets its bit again and may or may not
  // stay.
  nic.faults.fetch_and(kLastingBits | (host_is_off(fabric, nic) ? uint32_t{kDead} : 0));
  shape_slow(fabric, nic, 0);
  rules_end(nic);
  nic.command_delay_us.store(0);
  if (!gids_are_original(nic.gids.load())) gids_change(nic, GidChange::kRestore);
}

void switch_apply(FabricFile& fabric, FabricNic& nic, Kind kind, uint32_t value, uint64_t now_ns) {
  flap_settle(fabric, nic, now_ns);
  switch (kind) {
    case Kind::kLinkDown:
      link_down(nic);
      break;
    case Kind::kLinkUp:
      nic.faults.fetch_and(~(kLinkDown | kFlap));
      break;
    case Kind::kKill:
      nic.kills.fetch_add(1);
      nic.faults.fetch_or(kDead);
      break;
    case Kind::kRevive:
      if (!host_is_off(fabric, nic)) nic.faults.fetch_and(~kDead);
      break;
    case Kind::kDropData:
      nic.faults.fetch_or(kDropData);
      break;
    case Kind::kDropAcks:
      nic.faults.fetch_or(kDropAcks);
      break;
    case Kind::kSlowCommands:
      nic.command_delay_us.store(value);
      break;
    case Kind::kHangCommands:
      nic.command_delay_us.store(kCommandsHang);
      break;
    case Kind::kGidChange:
      gids_change(nic, static_cast<GidChange>(value));
      break;
    case Kind::kGidRestore:
      gids_change(nic, GidChange::kRestore);
      break;
    case Kind::kHeal:
      heal(fabric, nic);
      break;
    case Kind::kSlow:
      shape_slow(fabric, nic, value == 1'000'000 ? 0 : value);
      break;
    case Kind::kCut:
      if (((nic.faults.fetch_or(kCut)) & (kCut | kLinkDown)) == 0)
        nic.link_downed.fetch_add(1, std::memory_order_relaxed);
      break;
    case Kind::kPowerOff:
      nic.kills.fetch_add(1);
      nic.faults.fetch_or(kDead);
      break;
    case Kind::kPowerOn:
      nic.faults.fetch_and(~kDead);
      break;
    default:
      break;  // not switches
  }
}

bool rule_apply(FabricFile& fabric, FabricNic& nic, const FaultCommand& fault, std::string* error) {
  RuleSpec spec = fault.rule;
  spec.salt = uint32_t{nic_number(fabric, nic)} << 8 | static_cast<uint32_t>(spec.effect);
  RuleCopy copy;
  for (FaultRule& rule : nic.rules)
    if (rule_read(rule, &copy) && copy.spec.same_target(spec)) rule_end(rule, copy.state);
  const bool nothing = spec.effect == FaultEffect::kDelay ? spec.value == 0 : spec.chance_ppm == 0;
  if (nothing) {
    rules_settle(nic);
    return true;
  }
  if (!rule_arm(nic.rules, spec)) {
    *error = fault.text + ": " + nic_name(fabric, nic) + " has its " + std::to_string(kMaxRules) +
             " rules already; 'heal' ends them";
    return false;
  }
  nic.faults.fetch_or(kRules);
  return true;
}

}  // namespace

bool fault_apply(FabricFile& fabric, FabricNic& nic, const FaultCommand& fault, uint64_t now_ns,
                 std::string* error) {
  if (fault.kind == Kind::kSlow && !shape_may_slow(fabric, nic)) {
    *error = fault.text + ": " + nic_name(fabric, nic) +
             " has no rate in both directions; 'cxemu nic' sets one, or 'cxemu calibrate' measures "
             "the machine's";
    return false;
  }
  if (fault.triggered || fault.selective || fault_is_about_packets(fault.kind)) {
    if (!rule_apply(fabric, nic, fault, error)) return false;
  } else if (fault.kind == Kind::kFlap) {
    flap_settle(fabric, nic, now_ns);
    flap_start(nic, fault, now_ns);
  } else {
    switch_apply(fabric, nic, fault.kind, fault.value, now_ns);
  }
  event_log(fabric,
            {.kind = EventKind::kFault, .nic = nic_number(fabric, nic), .text = fault.text});
  nic_changed(fabric, nic);
  return true;
}

void fault_switch(FabricFile& fabric, FabricNic& nic, const RuleSpec& rule, uint64_t now_ns) {
  switch_apply(fabric, nic, static_cast<Kind>(rule.action), rule.value, now_ns);
  event_log(fabric, {.kind = EventKind::kTriggered,
                     .nic = nic_number(fabric, nic),
                     .text = rule_describe(fabric, rule)});
  nic_changed(fabric, nic);
}

void rule_finish(FabricFile& fabric, FabricNic& nic, FaultRule& rule, const RuleCopy& copy) {
  if (!rule_end(rule, copy.state)) return;
  rules_settle(nic);
  if (copy.spec.effect != FaultEffect::kSwitch)
    event_log(fabric, {.kind = EventKind::kRuleEnded,
                       .nic = nic_number(fabric, nic),
                       .text = rule_describe(fabric, copy.spec)});
  nic_changed(fabric, nic);
}

bool rules_cut_peer(const FabricNic& nic, uint32_t peer_ipv4_be) {
  RuleCopy copy;
  for (const FaultRule& rule : nic.rules) {
    if (!rule_read(rule, &copy)) continue;
    const RuleSpec& spec = copy.spec;
    if (spec.effect == FaultEffect::kDrop && spec.chance_ppm == 1'000'000 &&
        spec.directions == kDirectionBoth &&
        (spec.ops == kOpRequests || spec.ops == kOpResponses || spec.ops == kOpAll) &&
        spec.after == 1 && spec.count == 0 && spec.qpn == 0 && spec.peer_ipv4_be == peer_ipv4_be)
      return true;
  }
  return false;
}

}  // namespace cxemu

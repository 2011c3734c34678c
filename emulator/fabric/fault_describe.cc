// Shows faults in the words in which they can be set.
#include <cstdio>

#include "fabric/fault.h"
#include "fabric/fault_words.h"
#include "fabric/gid.h"

namespace cxemu {
namespace {

using Kind = FaultCommand::Kind;

std::string number(double value) {
  char text[32];
  snprintf(text, sizeof text, "%g", value);
  return text;
}

const char* word_of(Kind kind) {
  for (const FaultWord& word : kFaultWords)
    if (word.kind == kind) return word.text;
  return "?";
}

std::string with_percent(Kind kind, uint32_t ppm) {
  std::string text = word_of(kind);
  if (kind == Kind::kLoss || ppm != 1'000'000) text += "=" + number(ppm / 1e4);
  return text;
}

// The fault without its modifiers. *ops: the kinds of packets that still have to be named.
std::string head_describe(const RuleSpec& rule, uint8_t* ops) {
  *ops = rule.ops;
  switch (rule.effect) {
    case FaultEffect::kDrop:
      if (rule.chance_ppm == 1'000'000 && (rule.ops == kOpRequests || rule.ops == kOpResponses)) {
        *ops = kOpAll;
        return word_of(rule.ops == kOpRequests ? Kind::kDropData : Kind::kDropAcks);
      }
      return with_percent(Kind::kLoss, rule.chance_ppm);
    case FaultEffect::kDelay:
      return std::string(word_of(Kind::kDelay)) + "=" + number(rule.value / 1e3);
    case FaultEffect::kReorder:
      return with_percent(Kind::kReorder, rule.chance_ppm);
    case FaultEffect::kDuplicate:
      return with_percent(Kind::kDuplicate, rule.chance_ppm);
    case FaultEffect::kCorrupt:
      return with_percent(Kind::kCorrupt, rule.chance_ppm);
    case FaultEffect::kSwitch:
      break;
  }
  const auto kind = static_cast<Kind>(rule.action);
  std::string text = word_of(kind);
  if (kind == Kind::kGidChange && static_cast<GidChange>(rule.value) == GidChange::kIndex)
    text += "=index";
  if (kind == Kind::kSlowCommands) text += "=" + number(rule.value / 1e3);
  if (kind == Kind::kSlow) text += "=" + number(rule.value / 1e4);
  return text + "@" + kTickWords[static_cast<size_t>(rule.tick)] + "=" + std::to_string(rule.after);
}

// As "send,write". One word names both the requests and the responses of READs or atomics.
std::string ops_describe(uint8_t ops) {
  std::string text;
  for (const OpWord& word : kOpWords)
    if ((ops & word.ops) != 0) text += (text.empty() ? "" : ",") + std::string(word.text);
  return text;
}

std::string peer_name(const FabricFile& fabric, uint32_t ipv4_be) {
  for (const FabricNic& nic : fabric.nic)
    if (nic.used.load(std::memory_order_acquire) != 0 && nic.ipv4_be == ipv4_be)
      return nic_name(fabric, nic);
  return "?";
}

}  // namespace

std::string rule_describe(const FabricFile& fabric, const RuleSpec& rule) {
  uint8_t ops;
  std::string text = head_describe(rule, &ops);
  if (rule.peer_ipv4_be != 0) text += " peer=" + peer_name(fabric, rule.peer_ipv4_be);
  const uint8_t usual = rule.effect == FaultEffect::kDelay ? kDirectionOut : kDirectionBoth;
  if (rule.directions != usual) text += rule.directions == kDirectionIn ? " dir=in" : " dir=out";
  if (ops != kOpAll) text += " op=" + ops_describe(ops);
  if (rule.qpn != 0) text += " qpn=" + std::to_string(rule.qpn);
  if (rule.effect == FaultEffect::kSwitch) return text;
  if (rule.after != 1) text += " after=" + std::to_string(rule.after);
  if (rule.count != 0) text += " count=" + std::to_string(rule.count);
  return text;
}

std::string fault_describe(const FabricFile& fabric, const FabricNic& nic, uint64_t now_ns) {
  const uint32_t faults = nic.faults.load(std::memory_order_acquire);
  std::string text;
  const auto add = [&text](const std::string& word) {
    if (!text.empty()) text += ",";
    text += word;
  };
  if (fabric.host_off[nic.host].load() != 0)
    add(word_of(Kind::kPowerOff));
  else if ((faults & kDead) != 0)
    add(word_of(Kind::kKill));
  if ((faults & kCut) != 0) add(word_of(Kind::kCut));
  if ((faults & kLinkDown) != 0) add(word_of(Kind::kLinkDown));
  if (flap_next_ns(nic, now_ns) != UINT64_MAX) {
    const uint32_t times = nic.flap.times.load();
    add(std::string(word_of(Kind::kFlap)) + "=" + number(nic.flap.down_us.load() / 1e3) + "/" +
        number(nic.flap.up_us.load() / 1e3) + (times != 0 ? "x" + std::to_string(times) : ""));
  }
  if ((faults & kDropData) != 0) add(word_of(Kind::kDropData));
  if ((faults & kDropAcks) != 0) add(word_of(Kind::kDropAcks));
  if (const uint32_t delay_us = nic.command_delay_us.load(); delay_us == kCommandsHang)
    add(word_of(Kind::kHangCommands));
  else if (delay_us != 0)
    add(std::string(word_of(Kind::kSlowCommands)) + "=" + number(delay_us / 1e3));
  if (const uint32_t ppm = nic.shape.slow_ppm.load(); ppm != 0)
    add(std::string(word_of(Kind::kSlow)) + "=" + number(ppm / 1e4));
  if (!gids_are_original(nic.gids.load(std::memory_order_acquire))) add(word_of(Kind::kGidChange));
  RuleCopy copy;
  for (const FaultRule& rule : nic.rules)
    if (rule_read(rule, &copy)) add(rule_describe(fabric, copy.spec));
  return text.empty() ? "ok" : text;
}

}  // namespace cxemu

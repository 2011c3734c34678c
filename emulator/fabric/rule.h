// Fault rules: what happens to which packets of a NIC, and what happens to the NIC at its n-th
// packet, work request or completion. Each NIC has a fixed table of rules in the fabric file;
// `cxemu fault` and scripts write it, and every engine of every process reads it.
//
// Readers copy a rule, but count in the table itself: `matched` numbers the matching events of all
// processes of the host, so that "the n-th" is one event wherever it happens.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace cxemu {

inline constexpr int kMaxRules = 16;

enum class FaultEffect : uint8_t { kDrop, kDelay, kReorder, kDuplicate, kCorrupt, kSwitch };

// What a rule counts.
enum class FaultTick : uint8_t { kPacket, kWqe, kCqe };

enum FaultDirection : uint8_t { kDirectionIn = 1, kDirectionOut = 2, kDirectionBoth = 3 };

// Kinds of packets that a rule can select.
enum FaultOp : uint8_t {
  kOpSend = 1 << 0,
  kOpWrite = 1 << 1,
  kOpReadRequest = 1 << 2,
  kOpReadResponse = 1 << 3,
  kOpAtomicRequest = 1 << 4,
  kOpAtomicResponse = 1 << 5,
  kOpAck = 1 << 6,
  kOpNak = 1 << 7,  // negative acknowledgements, including those for a missing receive
  kOpRequests = kOpSend | kOpWrite | kOpReadRequest | kOpAtomicRequest,
  kOpResponses = kOpReadResponse | kOpAtomicResponse | kOpAck | kOpNak,
  kOpAll = 0xff,
};

struct RuleSpec {
  FaultEffect effect = FaultEffect::kDrop;
  FaultTick tick = FaultTick::kPacket;
  uint8_t directions = kDirectionBoth;
  uint8_t ops = kOpAll;
  uint16_t action = 0;  // kSwitch: a FaultCommand::Kind
  uint16_t reserved = 0;
  uint32_t value = 0;             // kDelay: microseconds; kSwitch: the command's value
  uint32_t chance_ppm = 1000000;  // kSwitch: always certain
  uint32_t peer_ipv4_be = 0;      // 0: any
  uint32_t qpn = 0;               // of this NIC; 0: any
  uint64_t after = 1;             // the first matching event that is affected
  uint64_t count = 0;             // how many are affected before the rule ends; 0: no end
  uint32_t seed = 1;
  uint32_t salt = 0;  // makes equal seeds give different dice on different NICs

  // Whether both are the same fault of the same packets; the new rule then replaces the old one.
  bool same_target(const RuleSpec& other) const;
  bool operator==(const RuleSpec&) const = default;
};

// One slot of the table.
struct FaultRule {
  // Serial << 2 | phase. The serial changes with the phase, so that a reader can tell whether it
  // copied one whole rule.
  std::atomic<uint32_t> state;
  std::array<std::atomic<uint64_t>, sizeof(RuleSpec) / 8> words;  // a RuleSpec
  std::atomic<uint64_t> matched, struck;
};
static_assert(sizeof(RuleSpec) % 8 == 0);

// The properties of one event, for matching.
struct EventTraits {
  FaultTick tick = FaultTick::kPacket;
  uint8_t direction = 0;  // `direction` and `op` are for packets only
  uint8_t op = 0;
  uint32_t peer_ipv4_be = 0;
  uint32_t qpn = 0;
};
bool rule_matches(const RuleSpec&, const EventTraits&);

// A reader's copy of a rule.
struct RuleCopy {
  RuleSpec spec;
  uint32_t state = 0;  // of the slot when it was copied
};
// Returns false if the slot holds no rule.
bool rule_read(const FaultRule&, RuleCopy* copy);
// Returns false if the table is full.
bool rule_arm(std::array<FaultRule, kMaxRules>&, const RuleSpec&);
// Ends the rule that was read with `state`; returns false if it is no longer there.
bool rule_end(FaultRule&, uint32_t state);

// Counts one matching event and returns whether it is affected. *ended: it was the last one.
bool rule_strike(FaultRule&, const RuleSpec&, bool* ended);
// The dice of a rule: whether its n-th matching event is affected. The result depends on nothing
// else.
bool rule_chance(const RuleSpec&, uint64_t n);

}  // namespace cxemu

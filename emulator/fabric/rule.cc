// The rule table. It has no locks: writers take a slot by its state, and readers check the state
// before and after their copy.
#include "fabric/rule.h"

#include <cstring>

namespace cxemu {
namespace {

enum Phase : uint32_t { kFree = 0, kWriting = 1, kArmed = 2 };
constexpr uint32_t kPhaseMask = 3;

uint32_t next_state(uint32_t state, Phase phase) {
  return ((state | kPhaseMask) + 1) | phase;
}

}  // namespace

bool RuleSpec::same_target(const RuleSpec& other) const {
  RuleSpec same = other;
  same.value = value;
  same.chance_ppm = chance_ppm;
  same.seed = seed;
  return *this == same;
}

bool rule_matches(const RuleSpec& rule, const EventTraits& event) {
  if (rule.tick != event.tick) return false;
  if (rule.peer_ipv4_be != 0 && rule.peer_ipv4_be != event.peer_ipv4_be) return false;
  if (rule.qpn != 0 && rule.qpn != event.qpn) return false;
  return rule.tick != FaultTick::kPacket ||
         ((rule.directions & event.direction) != 0 && (rule.ops & event.op) != 0);
}

bool rule_read(const FaultRule& rule, RuleCopy* copy) {
  const uint32_t state = rule.state.load(std::memory_order_acquire);
  if ((state & kPhaseMask) != kArmed) return false;
  uint64_t words[sizeof(RuleSpec) / 8];
  for (size_t i = 0; i < rule.words.size(); ++i)
    words[i] = rule.words[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (rule.state.load(std::memory_order_relaxed) != state) return false;
  memcpy(&copy->spec, words, sizeof words);
  copy->state = state;
  return true;
}

bool rule_arm(std::array<FaultRule, kMaxRules>& table, const RuleSpec& spec) {
  for (FaultRule& rule : table) {
    uint32_t state = rule.state.load(std::memory_order_acquire);
    if ((state & kPhaseMask) != kFree) continue;
    const uint32_t mine = next_state(state, kWriting);
    if (!rule.state.compare_exchange_strong(state, mine, std::memory_order_acq_rel)) continue;
    // A reader that sees a new word must see that the rule is being written. The exchange alone
    // does not order its store before those of the words.
    std::atomic_thread_fence(std::memory_order_release);
    uint64_t words[sizeof(RuleSpec) / 8];
    memcpy(words, &spec, sizeof words);
    for (size_t i = 0; i < rule.words.size(); ++i)
      rule.words[i].store(words[i], std::memory_order_relaxed);
    rule.matched.store(0, std::memory_order_relaxed);
    rule.struck.store(0, std::memory_order_relaxed);
    rule.state.store(next_state(mine, kArmed), std::memory_order_release);
    return true;
  }
  return false;
}

bool rule_end(FaultRule& rule, uint32_t state) {
  return rule.state.compare_exchange_strong(state, next_state(state, kFree),
                                            std::memory_order_acq_rel);
}

bool rule_strike(FaultRule& rule, const RuleSpec& spec, bool* ended) {
  *ended = false;
  const uint64_t n = rule.matched.fetch_add(1, std::memory_order_relaxed) + 1;
  if (n < spec.after || !rule_chance(spec, n)) return false;
  const uint64_t struck = rule.struck.fetch_add(1, std::memory_order_relaxed) + 1;
  if (spec.count == 0) return true;
  *ended = struck >= spec.count;
  return struck <= spec.count;
}

bool rule_chance(const RuleSpec& spec, uint64_t n) {
  if (spec.chance_ppm >= 1'000'000) return true;
  // splitmix64 of the event's number.
  const uint64_t stream = uint64_t{spec.salt} << 32 | spec.seed;
  uint64_t z = stream * 0xd1342543de82ef95ull + n * 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return (z >> 32) * 1'000'000 >> 32 < spec.chance_ppm;
}

}  // namespace cxemu

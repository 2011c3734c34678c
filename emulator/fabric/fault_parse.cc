// Parses faults.
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "fabric/fault.h"
#include "fabric/fault_words.h"
#include "fabric/gid.h"
#include "fabric/parse_error.h"

namespace cxemu {
namespace {

using Kind = FaultCommand::Kind;

constexpr double kMaxMs = 60000;

// Parses a decimal number in 0..max and multiplies it by `scale`.
bool scaled_parse(const std::string& text, double max, double scale, uint32_t* out) {
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string::npos) return false;
  char* end = nullptr;
  const double value = strtod(text.c_str(), &end);
  if (*end != '\0' || value > max) return false;
  *out = static_cast<uint32_t>(std::lround(value * scale));
  return true;
}

// Parses a whole number from 1 to `max`.
bool whole_parse(const std::string& text, uint64_t max, uint64_t* out) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos)
    return false;
  *out = strtoull(text.c_str(), nullptr, 10);
  return *out >= 1 && *out <= max;
}

bool flap_parse(const std::string& text, FaultCommand* out) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return false;
  const size_t cross = text.find('x', slash);
  const std::string up = text.substr(slash + 1, cross - slash - 1);  // npos: the rest
  uint64_t times = 0;
  if (cross != std::string::npos && !whole_parse(text.substr(cross + 1), 1'000'000, &times))
    return false;
  out->flap.times = static_cast<uint32_t>(times);
  return scaled_parse(text.substr(0, slash), kMaxMs, 1e3, &out->flap.down_us) &&
         scaled_parse(up, kMaxMs, 1e3, &out->flap.up_us) && out->flap.down_us >= 1000 &&
         out->flap.up_us >= 1000;
}

std::string known_words() {
  return "a host can have cut, power-off, power-on and heal; for a NIC, known are link-down, "
         "link-up, kill, revive, drop-data, drop-acks, loss=PERCENT, delay=MS, reorder[=PERCENT], "
         "duplicate[=PERCENT], corrupt[=PERCENT], flap=DOWN_MS/UP_MS[xTIMES], slow-commands=MS, "
         "hang-commands, slow=PERCENT, gid-change[=index], gid-restore and heal";
}

// Parses the value after "=", if there is one.
bool value_parse(const std::string& word, bool has_value, const std::string& value,
                 FaultCommand* out, std::string* error) {
  switch (out->kind) {
    case Kind::kLoss:
    case Kind::kReorder:
    case Kind::kDuplicate:
    case Kind::kCorrupt:
      out->value = 1'000'000;
      if (!has_value && out->kind != Kind::kLoss) return true;
      return scaled_parse(value, 100, 1e4, &out->value) ||
             fail(error, word, "wants a percentage, 0 to 100");
    case Kind::kDelay:
    case Kind::kSlowCommands:
      return scaled_parse(value, kMaxMs, 1e3, &out->value) ||
             fail(error, word, "wants milliseconds, 0 to 60000");
    case Kind::kSlow:
      return (scaled_parse(value, 100, 1e4, &out->value) && out->value != 0) ||
             fail(error, word, "wants the percentage that is left of the rate, up to 100");
    case Kind::kFlap:
      return flap_parse(value, out) ||
             fail(error, word, "wants DOWN_MS/UP_MS[xTIMES], each 1 to 60000");
    case Kind::kGidChange:
      out->value = static_cast<uint32_t>(has_value ? GidChange::kIndex : GidChange::kAddress);
      return !has_value || value == "index" || fail(error, word, "takes no value but 'index'");
    default:
      return !has_value || fail(error, word, "takes no value");
  }
}

// Parses a trigger such as "@packet=100".
bool trigger_parse(const std::string& word, const std::string& text, FaultCommand* out,
                   std::string* error) {
  const size_t equal = text.find('=');
  for (size_t i = 0; i < std::size(kTickWords) && equal != std::string::npos; ++i) {
    if (text.substr(0, equal) != kTickWords[i]) continue;
    if (fault_is_of_host(out->kind))
      return fail(error, word, "is about the whole host, which has no such count");
    if (out->kind == Kind::kFlap || fault_is_about_packets(out->kind))
      return fail(error, word, "cannot be put off; after=N begins at the N-th packet");
    out->rule.tick = static_cast<FaultTick>(i);
    out->rule.count = 1;
    out->triggered = true;
    return whole_parse(text.substr(equal + 1), UINT64_MAX, &out->rule.after) ||
           fail(error, word, "wants the number of an event, from 1");
  }
  return fail(error, word, "wants @packet=N, @wqe=N or @cqe=N");
}

bool fault_word_parse(const std::string& word, FaultCommand* out, std::string* error) {
  *out = {};
  out->text = word;
  const size_t at = word.find('@');
  const std::string head = word.substr(0, at);
  const size_t equal = head.find('=');
  const std::string name = head.substr(0, equal);
  for (const FaultWord& known : kFaultWords) {
    if (name != known.text) continue;
    out->kind = known.kind;
    if (out->kind == Kind::kDelay) out->rule.directions = kDirectionOut;
    const bool has_value = equal != std::string::npos;
    if (!value_parse(word, has_value, has_value ? head.substr(equal + 1) : "", out, error))
      return false;
    return at == std::string::npos || trigger_parse(word, word.substr(at + 1), out, error);
  }
  return fail(error, word, "unknown fault; " + known_words());
}

bool ops_parse(const std::string& text, uint8_t* ops) {
  *ops = 0;
  std::istringstream list(text);
  for (std::string one; std::getline(list, one, ',');) {
    const uint8_t before = *ops;
    for (const OpWord& known : kOpWords)
      if (one == known.text) *ops |= known.ops;
    if (*ops == before) return false;
  }
  return *ops != 0;
}

bool is_modifier(const std::string& word) {
  for (const char* name : {"peer=", "dir=", "after=", "count=", "op=", "qpn="})
    if (word.starts_with(name)) return true;
  return false;
}

bool modifier_parse(FabricFile& fabric, const std::string& word, FaultCommand* fault,
                    std::string* error) {
  RuleSpec& rule = fault->rule;
  const bool packets = fault_is_about_packets(fault->kind) || fault->triggered ||
                       fault->kind == Kind::kDropData || fault->kind == Kind::kDropAcks;
  if (!packets) return fail(error, word, "'" + fault->text + "' is about the whole NIC");
  const std::string name = word.substr(0, word.find('='));
  const std::string value = word.substr(name.size() + 1);
  fault->selective = true;
  fault->text += " " + word;
  if (name == "peer") {
    const FabricNic* peer = nic_by_name(fabric, value, error);
    if (peer == nullptr) return false;
    rule.peer_ipv4_be = peer->ipv4_be;
    return true;
  }
  uint64_t number = 0;
  if (name == "qpn") {
    if (!whole_parse(value, 0xffffff, &number))
      return fail(error, word, "wants the number of a queue pair, see 'cxemu list'");
    rule.qpn = static_cast<uint32_t>(number);
    return true;
  }
  if (name == "after" || name == "count") {
    if (fault->triggered) return fail(error, word, "the fault has a trigger already");
    return whole_parse(value, UINT64_MAX, name == "after" ? &rule.after : &rule.count) ||
           fail(error, word, "wants a number of packets, from 1");
  }
  if (rule.tick != FaultTick::kPacket) return fail(error, word, "selects packets only");
  if (name == "dir") {
    if (value != "in" && value != "out") return fail(error, word, "wants in or out");
    rule.directions = value == "in" ? kDirectionIn : kDirectionOut;
    return true;
  }
  return ops_parse(value, &rule.ops) ||
         fail(error, word, "wants some of send,write,read,atomic,ack,nak");
}

// Sets what follows from all words together.
bool fault_finish(uint32_t seed, FaultCommand* fault, std::string* error) {
  RuleSpec& rule = fault->rule;
  rule.seed = seed;
  if (fault->triggered) {
    rule.effect = FaultEffect::kSwitch;
    rule.action = static_cast<uint16_t>(fault->kind);
    rule.value = fault->value;
    return true;
  }
  switch (fault->kind) {
    case Kind::kDropData:
    case Kind::kDropAcks:
      rule.ops &= fault->kind == Kind::kDropData ? kOpRequests : kOpResponses;
      if (rule.ops == 0) return fail(error, fault->text, "no packet is both");
      return true;
    case Kind::kDelay:
      rule.effect = FaultEffect::kDelay;
      rule.value = fault->value;
      return true;
    case Kind::kReorder:
      rule.effect = FaultEffect::kReorder;
      break;
    case Kind::kDuplicate:
      rule.effect = FaultEffect::kDuplicate;
      break;
    case Kind::kCorrupt:
      rule.effect = FaultEffect::kCorrupt;
      break;
    default:
      break;
  }
  if (fault_is_about_packets(fault->kind)) rule.chance_ppm = fault->value;
  return true;
}

}  // namespace

bool faults_parse(FabricFile& fabric, const std::vector<std::string>& words, uint32_t seed,
                  std::vector<FaultCommand>* out, std::string* error) {
  out->clear();
  for (const std::string& word : words) {
    if (!is_modifier(word)) {
      out->emplace_back();
      if (!fault_word_parse(word, &out->back(), error)) return false;
    } else if (out->empty()) {
      return fail(error, word, "stands before any fault");
    } else if (!modifier_parse(fabric, word, &out->back(), error)) {
      return false;
    }
  }
  if (out->empty()) {
    *error = "no fault given; " + known_words();
    return false;
  }
  for (FaultCommand& fault : *out)
    if (!fault_finish(seed, &fault, error)) return false;
  return true;
}

bool fault_parse(FabricFile& fabric, const std::string& text, FaultCommand* out,
                 std::string* error) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  std::vector<FaultCommand> all;
  if (!faults_parse(fabric, words, 1, &all, error)) return false;
  if (all.size() != 1) return fail(error, text, "more than one fault");
  *out = all[0];
  return true;
}

}  // namespace cxemu

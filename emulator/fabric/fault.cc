// Parsing, applying and showing faults.
#include "fabric/fault.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace cxemu {
namespace {

using Kind = FaultCommand::Kind;

struct Word {
  const char* text;
  Kind kind;
};
constexpr Word kWords[] = {
    {"link-down", Kind::kLinkDown}, {"link-up", Kind::kLinkUp},     {"kill", Kind::kKill},
    {"revive", Kind::kRevive},      {"drop-data", Kind::kDropData}, {"drop-acks", Kind::kDropAcks},
    {"heal", Kind::kHeal},
};

// A whole decimal number in 0..max, times scale.
bool scaled_parse(const std::string& text, double max, double scale, uint32_t* out) {
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string::npos) return false;
  char* end = nullptr;
  const double value = strtod(text.c_str(), &end);
  if (*end != '\0' || value > max) return false;
  *out = static_cast<uint32_t>(std::lround(value * scale));
  return true;
}

std::string number(double value) {
  char text[32];
  snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

bool fault_parse(const std::string& text, FaultCommand* out, std::string* error) {
  for (const Word& word : kWords) {
    if (text == word.text) {
      *out = {word.kind, 0};
      return true;
    }
  }
  if (text.starts_with("loss=")) {
    *out = {Kind::kLoss, 0};
    if (scaled_parse(text.substr(5), 100, 1e4, &out->value)) return true;
    *error = text + ": loss is a percentage, 0 to 100";
    return false;
  }
  if (text.starts_with("delay=")) {
    *out = {Kind::kDelay, 0};
    if (scaled_parse(text.substr(6), 60000, 1e3, &out->value)) return true;
    *error = text + ": delay is in milliseconds, 0 to 60000";
    return false;
  }
  *error = text +
           ": unknown fault; known are link-down, link-up, kill, revive, drop-acks, drop-data, "
           "loss=PERCENT, delay=MS and heal";
  return false;
}

void fault_apply(const Fabric& fabric, FabricNic* nic, const FaultCommand& command) {
  switch (command.kind) {
    case Kind::kLinkDown:
      nic->faults.fetch_or(kLinkDown);
      break;
    case Kind::kLinkUp:
      nic->faults.fetch_and(~kLinkDown);
      break;
    case Kind::kKill:
      nic->kills.fetch_add(1);
      nic->faults.fetch_or(kDead);
      break;
    case Kind::kRevive:
      nic->faults.fetch_and(~kDead);
      break;
    case Kind::kDropData:
      nic->faults.fetch_or(kDropData);
      break;
    case Kind::kDropAcks:
      nic->faults.fetch_or(kDropAcks);
      break;
    case Kind::kLoss:
      nic->loss_ppm.store(command.value);
      break;
    case Kind::kDelay:
      nic->delay_us.store(command.value);
      break;
    case Kind::kHeal:
      nic->loss_ppm.store(0);
      nic->delay_us.store(0);
      nic->faults.store(0);
      break;
  }
  fabric.change_notify(nic);
}

std::string fault_describe(const FabricNic& nic) {
  const uint32_t faults = nic.faults.load(std::memory_order_acquire);
  std::string text;
  const auto add = [&text](const std::string& word) {
    if (!text.empty()) text += ",";
    text += word;
  };
  if (faults & kDead) add("kill");
  if (faults & kLinkDown) add("link-down");
  if (faults & kDropData) add("drop-data");
  if (faults & kDropAcks) add("drop-acks");
  if (const uint32_t ppm = nic.loss_ppm.load()) add("loss=" + number(ppm / 1e4));
  if (const uint32_t us = nic.delay_us.load()) add("delay=" + number(us / 1e3));
  return text.empty() ? "ok" : text;
}

}  // namespace cxemu

// `cxemu fault`.
#include "fabric/fault.h"

#include <cstdio>
#include <sstream>
#include <stdexcept>

#include "host/cli/commands.h"
#include "host/cli/target.h"

namespace cxemu {

namespace {

bool fault_is_random(const FaultCommand& fault) {
  return fault.kind >= FaultCommand::Kind::kLoss && fault.rule.effect != FaultEffect::kDelay &&
         fault.rule.chance_ppm != 0 && fault.rule.chance_ppm != 1'000'000;
}

// A fault with its modifiers may also be a single quoted argument.
std::vector<std::string> words_split(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    std::istringstream stream(argument);
    for (std::string word; stream >> word;) words.push_back(word);
  }
  return words;
}

}  // namespace

int fault_run(const std::string& fabric_name, const std::string& target,
              const std::vector<std::string>& arguments, uint32_t seed) {
  const Fabric fabric = fabric_open(fabric_name);
  FaultTarget found;
  std::vector<FaultCommand> faults;
  std::string error;
  // If one fault is wrong, none is applied.
  if (!target_faults_parse(*fabric, target, words_split(arguments), seed, &found, &faults, &error))
    throw std::runtime_error(error);
  for (const FaultCommand& fault : faults) {
    if (!target_fault(fabric, fabric_name, found, fault, &error)) throw std::runtime_error(error);
    if (fault_is_random(fault))
      printf("%s: %s, seed %u\n", target.c_str(), fault.text.c_str(), fault.rule.seed);
  }
  return 0;
}

}  // namespace cxemu

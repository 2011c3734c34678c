// The host's NICs, and which two of them would back each other.
#pragma once

#include <string>
#include <vector>

#include "ops/pairing.h"

namespace shift::verify {

// What the pairing knows, in its own words.
struct Nics {
  std::vector<std::string> names;    // all of the host
  std::vector<int> partners;         // by the layer's own choice, or by SHIFT_PAIRS
  std::vector<std::string> remarks;  // what each pair has against it; empty: nothing
  std::vector<std::string> reasons;  // why the partner of each NIC is its partner
  bool is_configured = false;        // SHIFT_PAIRS decides
};

// Reads sysfs, and opens no NIC.
Nics nics_read();
// What is the same in two NICs, or not known, in one line; what is not good goes to `remark`.
std::string pair_compare(const ops::NicFacts& a, const ops::NicFacts& b, std::string& remark);
// The pair that is looked at: `wanted` if it names two, else the first NIC that has a partner, and
// that partner. One or none: there is no such pair.
std::vector<std::string> pair_choose(const Nics& nics, const std::vector<std::string>& wanted);
// The network devices that hold the NIC's GIDs, each once.
std::vector<std::string> network_devices(const std::string& nic);

}  // namespace shift::verify

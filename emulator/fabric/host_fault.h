// Faults of whole hosts: cut, power-off, power-on and heal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/fault.h"

namespace cxemu {

// What a command or a line of a script is about.
struct FaultTarget {
  int host = -1;
  FabricNic* nic = nullptr;  // nullptr: the whole host
};

// Parses faults of `name`, HOST/DEVICE or HOST. Returns false and a one-line *error if it does not
// exist, or cannot have these faults.
bool target_faults_parse(FabricFile&, const std::string& name,
                         const std::vector<std::string>& words, uint32_t seed, FaultTarget* target,
                         std::vector<FaultCommand>* out, std::string* error);
// Sets the fault on all NICs of the host. `cut`: they lose their links, and processes live on.
// `power-off` ends all processes of the host but the caller, and removes `run_dir`; until
// `power-on` no program can be started there. `fabric_path` is the fabric's file, by which
// processes are found.
void host_fault_apply(FabricFile&, int host, const FaultCommand&, const std::string& fabric_path,
                      const std::string& run_dir, uint64_t now_ns);

}  // namespace cxemu

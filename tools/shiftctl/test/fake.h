// State files as processes write them, and files that only look like that.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fsm/fsm.h"
#include "state/layout.h"
#include "util/unique_fd.h"

namespace shift::ctl::test {

// The records of one file, which the caller may change before they are written.
struct Fake {
  state::ProcessRecord process;
  std::vector<state::DeviceRecord> devices;
  std::vector<state::GroupRecord> groups;
  std::vector<state::FaultRecord> faults;

  // A process with one device on these NICs, all of them up.
  static Fake with(uint32_t pid, const std::vector<std::string>& nics);

  // Adds a QP that is on its default NIC and has this many further paths.
  state::GroupRecord& add_qp(uint32_t qpn, uint8_t ready_members,
                             fsm::State state = fsm::State::kActive);
  state::FaultRecord& add_fault(uint32_t qpn, int64_t time_ns, const std::string& cause);

  // The file's bytes, sealed.
  std::string bytes() const;
};

// Bytes of a file of totals.
std::string totals_bytes(const state::Counters& counters);

// Makes the user's folder, and writes the bytes into a file of it. The file's descriptor.
UniqueFd file_write(const std::string& base, uid_t uid, const std::string& name,
                    const std::string& bytes);

// Holds the lock that says that the process lives. A process does not see its own lock, so only
// others find the file locked.
bool lock_take(int fd);

}  // namespace shift::ctl::test

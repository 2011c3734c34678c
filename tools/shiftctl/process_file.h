// Reads the state file of one process. The file comes from a stranger, may be written meanwhile,
// and may be anything but what its name says.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "state/layout.h"

namespace shift::ctl {

// What a process has told of itself. Texts in it are as they were found: text_safe() comes later.
struct Process {
  uid_t uid = 0;     // the owner of the folder, whatever the file says
  std::string name;  // of the file, without its ending: PID-RANDOM
  bool is_live = false;
  uint32_t pid = 0;  // as this process sees it, as long as the other one lives
  state::ProcessRecord record;
  std::vector<state::DeviceRecord> devices;
  std::vector<state::GroupRecord> groups;
  std::vector<state::FaultRecord> faults;  // in order of time
  unsigned damaged = 0;                    // records that were left out

  // The device that a QP was made on, or null.
  const state::DeviceRecord* device_of(const state::GroupRecord& group) const;
};

// Reads the file that is open at `fd`, and takes its places from `places`, which bounds what one
// user's files can cost. Returns an empty text, or why the file was left out.
std::string process_read(int fd, size_t& places, Process& process);

// Reads a file of totals in the same way.
std::string totals_read(int fd, state::TotalsRecord& totals);

// The process that holds a lock on the file: 0 is none, and -1 one that this process cannot see.
pid_t lock_holder(int fd);

}  // namespace shift::ctl

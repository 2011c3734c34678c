// The notice board of this process: what its parts tell goes from here to the state file. The file
// is made with the first notice. Any thread may use it; nothing here ever waits for another process
// or stops the program, and a file that cannot be written costs one line in the log.
//
// Notices of QPs come from the control loop in bundles (control/reporter.h), all others at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "state/layout.h"
#include "state/state_file.h"

namespace shift::state {

class Board {
 public:
  // `base` is the base folder (directory.h); if it is empty, nothing is told. `about` gives what is
  // known of the process when its file is made, without what the board knows itself: the pid, the
  // times, the program and its arguments.
  Board(std::string base, std::function<ProcessRecord()> about);

  // `owner` is any number that belongs to this device alone, as long as it is open.
  void device_set(uint64_t owner, const DeviceRecord& record) noexcept;
  void device_gone(uint64_t owner) noexcept;
  // `serial` is the number of the QP's life (group/life.h).
  void group_set(uint64_t serial, const GroupRecord& record) noexcept;
  struct GroupNotice {
    uint64_t serial;
    GroupRecord record;
  };
  // The same for many, with as few system calls as their places allow.
  void groups_set(std::span<const GroupNotice> notices) noexcept;
  void group_gone(uint64_t serial) noexcept;
  // In their order. The file has room for the last kFaults of all.
  void faults_add(std::span<const FaultRecord> records) noexcept;
  // Why nothing in this process is protected.
  void problem_set(const char* problem) noexcept;
  // Changes the counts; flush() writes them.
  void count(const std::function<void(Counters&)>& change) noexcept;
  // Writes what has changed in the process's own record.
  void flush() noexcept;

  // The file's path without its end; empty if there is no file.
  std::string stem() noexcept;

  // The process ends in order. Nothing is told from here on.
  void end() noexcept;

 private:
  // Places of one kind, by their owners.
  struct Places {
    size_t begin, count;
    std::unordered_map<uint64_t, size_t> taken;
    std::vector<size_t> free;
    size_t used = 0;  // places that were ever taken

    // Invalid (0) if all are taken.
    size_t take(uint64_t owner);
    size_t leave(uint64_t owner);
  };

  bool open();
  template <typename Record>
  void set(Places& places, uint32_t ProcessRecord::*lost, uint64_t owner, Record record);
  void clear(Places& places, uint64_t owner);
  void written(int error);
  void process_write();

  const std::string base_;
  const std::function<ProcessRecord()> about_;
  std::mutex mutex_;
  enum class Phase : uint8_t { kUnopened, kOpen, kOver } phase_ = Phase::kUnopened;
  bool is_told_ = false;  // a line has said that the file cannot be written
  StateFile file_;
  ProcessRecord process_;
  Places devices_{kDevicesBegin, kDevices, {}, {}, 0};
  Places groups_{kGroupsBegin, kGroups, {}, {}, 0};
};

}  // namespace shift::state

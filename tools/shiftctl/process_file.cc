#include "process_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "fsm/fsm.h"

namespace shift::ctl {

namespace {

constexpr int kReadTries = 4;  // one, and three more where a sum is wrong
constexpr std::chrono::milliseconds kReadPause{1};
// Damage costs a reader time, so it costs the user's files as much as so many places.
constexpr size_t kDamagePlaces = 4096;
constexpr char kTooMuch[] = "the user's files are too many to look at all of them";

// Reads up to `size` bytes, fewer where the file ends, and never more.
size_t read_at(int fd, void* to, size_t size, size_t begin) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n =
        ::pread(fd, static_cast<char*>(to) + done, size - done, static_cast<off_t>(begin + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

// The first record of a file. What says that it is another file comes before the sum, since the sum
// of another version may be made of other bytes.
template <typename Record>
std::string head_read(int fd, Record& record) {
  for (int i = 0; i < kReadTries; i++) {
    if (i > 0) std::this_thread::sleep_for(kReadPause);
    record = {};
    if (read_at(fd, &record, sizeof record, 0) < sizeof record) {
      if (i + 1 == kReadTries) return "it ends within its first record";
      continue;
    }
    if (record.magic != state::kMagic) return "it is no state file";
    if (record.layout_version != state::kLayoutVersion)
      return "its layout has version " + std::to_string(record.layout_version) +
             ", and this shiftctl reads version " + std::to_string(state::kLayoutVersion);
    if (state::is_whole(record)) return "";
  }
  return "the sum of its first record is wrong";
}

bool is_in_range(const state::DeviceRecord& device) {
  return device.members >= 1 && device.members <= state::kMembers;
}

bool is_in_range(const state::GroupRecord& group) {
  const auto is_place = [](uint8_t member) {
    return member < state::kMembers || member == state::GroupRecord::kNoPath;
  };
  return group.state < static_cast<size_t>(fsm::State::kCount) && is_place(group.member) &&
         is_place(group.peer_member) && group.peer_members <= state::kMembers;
}

bool is_in_range(const state::FaultRecord&) {
  return true;  // its numbers are texts and times, and names that a reader does not know
}

// One place. `bytes` is what a read of the whole file has found there.
template <typename Record>
void place_read(int fd, size_t place, const char* bytes, std::vector<Record>& records,
                unsigned& damaged) {
  Record record;
  std::memcpy(static_cast<void*>(&record), bytes, sizeof record);
  for (int i = 1; record.head.kind != state::Kind::kFree && !state::is_whole(record); i++) {
    if (i == kReadTries) {
      damaged++;
      return;
    }
    std::this_thread::sleep_for(kReadPause);
    if (read_at(fd, &record, sizeof record, place * state::kPlaceSize) < sizeof record) return;
  }
  if (record.head.kind == state::Kind::kFree) return;
  if (is_in_range(record))
    records.push_back(record);
  else
    damaged++;
}

void charge(size_t& places, size_t cost) {
  places -= std::min(places, cost);
}

void places_read(int fd, size_t end, size_t& left, Process& process) {
  std::vector<char> bytes((end - state::kFaultsBegin) * state::kPlaceSize);
  const size_t size =
      read_at(fd, bytes.data(), bytes.size(), state::kFaultsBegin * state::kPlaceSize);
  for (size_t at = 0; at + state::kPlaceSize <= size; at += state::kPlaceSize) {
    if (left == 0) break;
    const unsigned damaged = process.damaged;
    const size_t place = state::kFaultsBegin + at / state::kPlaceSize;
    const char* const from = bytes.data() + at;
    if (place >= state::kGroupsBegin)
      place_read(fd, place, from, process.groups, process.damaged);
    else if (place >= state::kDevicesBegin)
      place_read(fd, place, from, process.devices, process.damaged);
    else
      place_read(fd, place, from, process.faults, process.damaged);
    charge(left, (process.damaged - damaged) * kDamagePlaces);
  }
}

}  // namespace

const state::DeviceRecord* Process::device_of(const state::GroupRecord& group) const {
  for (const state::DeviceRecord& device : devices)
    if (device.name(0) == state::text_of(group.device)) return &device;
  return nullptr;
}

pid_t lock_holder(int fd) {
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return 0;
  return lock.l_pid > 0 ? lock.l_pid : -1;
}

std::string process_read(int fd, size_t& places, Process& process) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return std::strerror(errno);
  const size_t size = static_cast<size_t>(status.st_size);
  if (size > state::kFileMax) return "it is larger than a state file can be";
  if (places == 0) return kTooMuch;
  if (const auto problem = head_read(fd, process.record); !problem.empty()) {
    charge(places, kDamagePlaces);
    return problem;
  }
  const pid_t holder = lock_holder(fd);
  process.is_live = holder != 0 && process.record.is_closed == 0;
  process.pid = holder > 0 ? static_cast<uint32_t>(holder) : process.record.pid;
  const size_t end = size / state::kPlaceSize;
  if (end <= state::kFaultsBegin) return "";
  if (end > places) return kTooMuch;
  charge(places, end);
  places_read(fd, end, places, process);
  std::stable_sort(process.faults.begin(), process.faults.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  return "";
}

std::string totals_read(int fd, state::TotalsRecord& totals) {
  return head_read(fd, totals);
}

}  // namespace shift::ctl

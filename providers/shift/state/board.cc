#include "state/board.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "util/log.h"

namespace shift::state {

namespace {

int64_t wall_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The arguments, with blanks between them; what does not fit is cut.
template <size_t N>
void command_read(std::array<char, N>& to) {
  char text[N] = {};
  const int fd = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t n = ::read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return;
  std::replace(text, text + n - 1, '\0', ' ');
  text_set(to, {text, strnlen(text, static_cast<size_t>(n))});
}

}  // namespace

size_t Board::Places::take(uint64_t owner) {
  if (const auto found = taken.find(owner); found != taken.end()) return found->second;
  size_t place = 0;
  if (!free.empty()) {
    place = free.back();
    free.pop_back();
  } else if (used < count) {
    place = begin + used++;
  }
  if (place != 0) taken.emplace(owner, place);
  return place;
}

size_t Board::Places::leave(uint64_t owner) {
  const auto found = taken.find(owner);
  if (found == taken.end()) return 0;
  const size_t place = found->second;
  taken.erase(found);
  free.push_back(place);
  return place;
}

Board::Board(std::string base, std::function<ProcessRecord()> about)
    : base_(std::move(base)), about_(std::move(about)) {
  if (base_.empty()) phase_ = Phase::kOver;
}

bool Board::open() {
  if (phase_ != Phase::kUnopened) return phase_ == Phase::kOpen;
  phase_ = Phase::kOver;
  std::string problem;
  if (!file_.open(base_, problem)) {
    SHIFT_WARN("shiftctl will not see this process: %s", problem.c_str());
    return false;
  }
  phase_ = Phase::kOpen;
  const Counters counters = process_.counters;
  process_ = about_();
  process_.counters = counters;
  process_.pid = static_cast<uint32_t>(::getpid());
  process_.uid = ::geteuid();
  process_.started_ns = wall_ns();
  text_set(process_.program, program_invocation_short_name);
  command_read(process_.command);
  process_write();
  return phase_ == Phase::kOpen;
}

// The layer goes on without the notice.
void Board::written(int error) {
  if (error == 0 || std::exchange(is_told_, true)) return;
  SHIFT_WARN("shiftctl will not see all of this process: %s.state: %s", file_.stem().c_str(),
             std::strerror(error));
}

void Board::process_write() {
  process_.written_ns = wall_ns();
  written(file_.write(0, process_));
}

template <typename Record>
void Board::set(Places& places, uint32_t ProcessRecord::*lost, uint64_t owner, Record record) {
  if (!open()) return;
  if (const size_t place = places.take(owner)) return written(file_.write(place, record));
  (process_.*lost)++;
}

void Board::clear(Places& places, uint64_t owner) {
  if (phase_ != Phase::kOpen) return;
  if (const size_t place = places.leave(owner)) written(file_.clear(place));
}

// Memory may be short; then a notice is missing.
void Board::device_set(uint64_t owner, const DeviceRecord& record) noexcept try {
  std::lock_guard lock(mutex_);
  set(devices_, &ProcessRecord::lost_devices, owner, record);
} catch (const std::bad_alloc&) {
}

void Board::device_gone(uint64_t owner) noexcept try {
  std::lock_guard lock(mutex_);
  clear(devices_, owner);
} catch (const std::bad_alloc&) {
}

void Board::group_set(uint64_t serial, const GroupRecord& record) noexcept try {
  std::lock_guard lock(mutex_);
  set(groups_, &ProcessRecord::lost_groups, serial, record);
} catch (const std::bad_alloc&) {
}

void Board::groups_set(std::span<const GroupNotice> notices) noexcept try {
  std::lock_guard lock(mutex_);
  if (!open()) return;
  std::map<size_t, const GroupRecord*> at;
  for (const auto& [serial, record] : notices) {
    const size_t place = groups_.take(serial);
    if (place == 0) {
      process_.lost_groups++;
    } else {
      at[place] = &record;
    }
  }
  std::vector<GroupRecord> row;
  for (auto each = at.begin(); each != at.end();) {
    const size_t first = each->first;
    for (row.clear(); each != at.end() && each->first == first + row.size(); ++each)
      row.push_back(*each->second);
    written(file_.write_row(first, std::span(row)));
  }
} catch (const std::bad_alloc&) {
}

void Board::group_gone(uint64_t serial) noexcept try {
  std::lock_guard lock(mutex_);
  clear(groups_, serial);
} catch (const std::bad_alloc&) {
}

void Board::faults_add(std::span<const FaultRecord> records) noexcept try {
  std::lock_guard lock(mutex_);
  if (!open()) return;
  for (size_t i = 0; i < records.size(); i++) {
    const size_t place = kFaultsBegin + process_.faults++ % kFaults;
    if (i + kFaults < records.size()) continue;
    FaultRecord copy = records[i];
    written(file_.write(place, copy));
  }
} catch (const std::bad_alloc&) {
}

void Board::problem_set(const char* problem) noexcept try {
  std::lock_guard lock(mutex_);
  if (!open() || text_of(process_.problem) == problem) return;
  text_set(process_.problem, problem);
  process_write();
} catch (const std::bad_alloc&) {
}

void Board::count(const std::function<void(Counters&)>& change) noexcept {
  std::lock_guard lock(mutex_);
  change(process_.counters);
}

void Board::flush() noexcept try {
  std::lock_guard lock(mutex_);
  if (phase_ == Phase::kOpen) process_write();
} catch (const std::bad_alloc&) {
}

std::string Board::stem() noexcept try {
  std::lock_guard lock(mutex_);
  return open() ? file_.stem() : std::string();
} catch (const std::bad_alloc&) {
  return {};
}

void Board::end() noexcept {
  std::lock_guard lock(mutex_);
  if (std::exchange(phase_, Phase::kOver) != Phase::kOpen) return;
  process_.is_closed = 1;  // for the case that the file has to stay
  process_write();
  file_.end(process_.counters);
}

}  // namespace shift::state

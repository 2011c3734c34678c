#include "state/shares_table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "state/directory.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::state {
namespace {

constexpr size_t kFileSizeMax = kShareSlots * kPlaceSize;

// A lock of the descriptor: it ends with the process, since forked children have the descriptor
// closed, and other copies of the layer in this process do not lose it by closing theirs.
int lock(int fd, int command, size_t at, short type, struct flock* found = nullptr) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(at);
  lock.l_len = 1;
  const int result = ::fcntl(fd, command, &lock);
  if (found != nullptr) *found = lock;
  return result;
}

bool is_live(int fd, size_t place) {
  struct flock found {};
  if (SHIFT_PLANT(ended_slots_count)) return true;
  return lock(fd, F_OFD_GETLK, place * kPlaceSize, F_WRLCK, &found) == 0 && found.l_type != F_UNLCK;
}

// The NIC's place in the slot; kMembers: it has none.
size_t place_of(const ShareRecord& record, uint64_t nic) {
  return static_cast<size_t>(std::ranges::find(record.nics, nic) - record.nics.begin());
}

}  // namespace

void SharesTable::tell(const std::string& problem) {
  if (std::exchange(is_told_, true)) return;
  SHIFT_WARN("what other processes put on this host's NICs is not seen in full: %s",
             problem.c_str());
}

bool SharesTable::is_ready() {
  if (is_off_) return false;
  if (!file_) return open();
  struct stat status {};
  // A program may have closed all descriptors that it does not know, and given the number to a file
  // of its own.
  if (::fstat(file_.get(), &status) != 0 || status.st_dev != device_ || status.st_ino != number_) {
    is_off_ = true;
    return false;
  }
  if (status.st_nlink != 0) return true;
  // Somebody has removed the file, and later processes use another one.
  file_.reset();
  return open();
}

bool SharesTable::open() {
  std::string problem;
  const UniqueFd folder = directory_open(base_, uid_, true, problem);
  struct stat status {};
  if (folder) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    file_ = UniqueFd(::openat(folder.get(), kSharesName, kFlags, 0600));
    const char* why = nullptr;
    if (!file_ || ::fstat(file_.get(), &status) != 0) {
      why = std::strerror(errno);
    } else {
      why = file_problem(status, {uid_});
    }
    if (why != nullptr) problem = user_directory(base_, uid_) + "/" + kSharesName + ": " + why;
  }
  is_off_ = !problem.empty();
  if (is_off_) {
    file_.reset();
    tell(problem);
    return false;
  }
  device_ = status.st_dev;
  number_ = status.st_ino;
  is_own_.reset();
  for (auto& [nic, slot] : own_) {
    claim(slot);
    write(slot);
  }
  return true;
}

void SharesTable::claim(Slot& slot) {
  // A lock that this process has already is no hindrance.
  const auto is_taken = [&](size_t place) {
    return is_own_[place] || lock(file_.get(), F_OFD_SETLK, place * kPlaceSize, F_WRLCK) != 0;
  };
  slot.place = 0;
  while (slot.place < kShareSlots && is_taken(slot.place)) slot.place++;
  if (slot.place < kShareSlots) is_own_[slot.place] = true;
}

// Needs no turn: a reader that meets a write halfway reads again.
void SharesTable::write(Slot& slot) {
  if (slot.place == kShareSlots) return;
  for (size_t first = 0; first < kMembers; first++) {
    for (size_t second = 0; second < kMembers; second++) {
      constexpr int64_t kMost = std::numeric_limits<uint16_t>::max();
      slot.record.groups[first][second] =
          static_cast<uint16_t>(std::min(slot.groups[first][second], kMost));
    }
  }
  seal(slot.record);
  char bytes[kPlaceSize] = {};
  std::memcpy(bytes, &slot.record, sizeof slot.record);
  const size_t at = slot.place * kPlaceSize;
  errno = EFBIG;
  const ssize_t n = write_is_allowed(at + sizeof bytes)
                        ? ::pwrite(file_.get(), bytes, sizeof bytes, static_cast<off_t>(at))
                        : -1;
  if (n == sizeof bytes) return;
  tell(user_directory(base_, uid_) + "/" + kSharesName + ": " +
       std::strerror(n < 0 ? errno : ENOSPC));
}

bool SharesTable::turn_begin() {
  if (!is_ready()) return false;
  if (SHIFT_PLANT(turns_not_taken)) return true;
  const int tries = std::exchange(has_missed_turn_, true) ? 1 : tries_;
  for (int i = 0; i < tries; i++) {
    if (i > 0) ::usleep(200);
    if (lock(file_.get(), F_OFD_SETLK, kFileSizeMax, F_WRLCK) != 0) continue;
    has_missed_turn_ = false;
    break;
  }
  return !has_missed_turn_;
}

void SharesTable::turn_end() {
  (void)lock(file_.get(), F_OFD_SETLK, kFileSizeMax, F_UNLCK);
}

// False: the record cannot be believed.
bool SharesTable::read(size_t place, ShareRecord& record) {
  const auto at = static_cast<off_t>(place * kPlaceSize);
  return ::pread(file_.get(), &record, sizeof record, at) == sizeof record && is_whole(record);
}

std::vector<SharesTable::Spares> SharesTable::others(uint64_t nic) {
  std::vector<Spares> found;
  if (!is_ready()) return found;
  bytes_.resize(kFileSizeMax);
  const ssize_t n = ::pread(file_.get(), bytes_.data(), bytes_.size(), 0);
  for (size_t place = 0; n > 0 && (place + 1) * kPlaceSize <= static_cast<size_t>(n); place++) {
    ShareRecord record;
    std::memcpy(static_cast<void*>(&record), bytes_.data() + place * kPlaceSize, sizeof record);
    if (is_own_[place] || record.head.kind == Kind::kFree || !is_live(file_.get(), place)) continue;
    if (!is_whole(record) && !read(place, record)) {
      tell(user_directory(base_, uid_) + "/" + kSharesName + ": a process's entry is damaged");
      continue;
    }
    if (record.magic != kMagic || record.layout_version != kLayoutVersion || record.nics[0] != nic)
      continue;
    for (size_t first = 1; first < kMembers; first++) {
      for (size_t second = 0; second < kMembers; second++) {
        if (const int64_t groups = record.groups[first][second])
          found.push_back({record.nics[first], second != 0 ? record.nics[second] : 0, groups});
      }
    }
  }
  return found;
}

void SharesTable::count(uint64_t nic, uint64_t first, uint64_t second, int change) {
  if (!is_ready()) return;
  auto [entry, is_new] = own_.try_emplace(nic);
  Slot& slot = entry->second;
  if (is_new) {
    slot.record.pid = static_cast<uint32_t>(::getpid());
    slot.record.nics[0] = nic;
    claim(slot);
    write(slot);  // what the slot's last process has left there counts no more
  }
  const auto place_for = [&](uint64_t spare) {
    if (spare == 0) return size_t{0};
    const size_t known = place_of(slot.record, spare);
    if (known != kMembers) return known;
    const size_t free = place_of(slot.record, 0);
    if (free != kMembers) slot.record.nics[free] = spare;
    return free;
  };
  const size_t one = place_for(first), other = place_for(second);
  if (one == 0 || one == kMembers || other == kMembers) return;
  slot.groups[one][other] += change;
  write(slot);
}

}  // namespace shift::state

#include "state/totals.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "state/directory.h"
#include "state/state_file.h"
#include "util/unique_fd.h"

namespace shift::state {

namespace {

// So many files are looked at, because the program waits meanwhile; another process will look at
// others.
constexpr size_t kLookedAt = 128;

template <size_t N>
void add(std::array<uint64_t, N>& to, const std::array<uint64_t, N>& from) {
  for (size_t i = 0; i < N; i++) to[i] += from[i];
}

// Opens the totals and locks them. Invalid if another process has the lock: nobody waits here.
UniqueFd totals_open(const std::string& base, uid_t uid) {
  const std::string path = user_directory(base, uid) + "/" + kTotalsName;
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != uid || status.st_nlink != 1) {
    return {};
  }
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  // A lock of the descriptor: two threads of one process exclude each other, too.
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; i++) {
    if (::fcntl(file.get(), F_OFD_SETLK, &lock) == 0) return file;
    ::usleep(200);
  }
  return {};
}

struct Ended {
  std::string path;
  int64_t written_ns;
  Counters counters;
};

// Reads the file if its process has ended.
bool ended_read(const std::string& path, uid_t uid, Ended& ended) {
  std::string problem;
  const UniqueFd file = file_open(AT_FDCWD, path, {uid}, problem);
  if (!file) return false;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) return false;
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return false;
  ended = {path, int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec, {}};
  ProcessRecord record;
  const ssize_t n = ::pread(file.get(), &record, sizeof record, 0);
  // A file of another version, or one that never got its first record, counts nothing.
  if (n == sizeof record && is_whole(record) && record.magic == kMagic &&
      record.layout_version == kLayoutVersion)
    ended.counters = record.counters;
  return true;
}

}  // namespace

void counters_add(Counters& to, const Counters& from) {
  add(to.switches, from.switches);
  add(to.pauses, from.pauses);
  to.pause_us += from.pause_us;
  to.replayed += from.replayed;
  to.completed += from.completed;
  add(to.failed, from.failed);
  to.stock_qps += from.stock_qps;
  to.protected_qps += from.protected_qps;
  to.unprotected_qps += from.unprotected_qps;
  to.drains_called_off += from.drains_called_off;
}

bool totals_add(const std::string& base, uid_t uid, const Counters& counters,
                const std::string& path) noexcept try {
  const UniqueFd file = totals_open(base, uid);
  if (!file) return false;
  TotalsRecord totals;
  const ssize_t n = ::pread(file.get(), &totals, sizeof totals, 0);
  if (n != sizeof totals || !is_whole(totals) || totals.magic != kMagic ||
      totals.layout_version != kLayoutVersion)
    totals = {};
  // Removed first: counts may be lost in a crash between the two, but never count twice.
  if (::unlink(path.c_str()) != 0) return false;
  totals.processes++;
  counters_add(totals.counters, counters);
  seal(totals);
  (void)!::pwrite(file.get(), &totals, sizeof totals, 0);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

void ended_fold(const std::string& base, uid_t uid) noexcept try {
  const std::string folder = user_directory(base, uid);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(folder.c_str()), ::closedir);
  if (listing == nullptr) return;
  // A process that closes a file loses its locks there, even those of another build of the layer.
  const std::string own = std::to_string(::getpid()) + "-";
  std::vector<std::string> names;
  while (names.size() < kLookedAt) {
    const dirent* entry = ::readdir(listing.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name.ends_with(kStateEnd) && !name.starts_with(own)) names.emplace_back(name);
  }
  if (names.size() <= kEndedKept) return;
  std::vector<Ended> all;
  for (const std::string& name : names) {
    Ended ended;
    if (ended_read(folder + "/" + name, uid, ended)) all.push_back(std::move(ended));
  }
  if (all.size() <= kEndedKept) return;
  std::ranges::sort(all, std::ranges::greater{}, &Ended::written_ns);
  for (size_t i = kEndedKept; i < all.size(); i++) {
    const std::string& path = all[i].path;
    if (!totals_add(base, uid, all[i].counters, path)) return;
    const std::string stem = path.substr(0, path.size() - std::string_view(kStateEnd).size());
    (void)::unlink((stem + kSocketEnd).c_str());
  }
} catch (const std::bad_alloc&) {
}

}  // namespace shift::state

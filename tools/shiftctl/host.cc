#include "host.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "counters.h"
#include "drained_file.h"
#include "state/directory.h"
#include "text.h"
#include "util/config.h"

namespace shift::ctl {

namespace {

// What one user's files may cost the reader, in places of 256 bytes: 256 MiB.
constexpr size_t kPlacesMax = 1u << 20;
constexpr size_t kUsersMax = 4096;
constexpr size_t kUnreadableMax = 100;  // lines
constexpr int kTotalsTries = 10;
constexpr std::chrono::milliseconds kTotalsPause{5};

void note(Host& host, const std::string& line) {
  if (host.unreadable.size() < kUnreadableMax) host.unreadable.push_back(text_safe(line));
}

// The names in a folder that `takes` says yes to.
template <typename Takes>
std::vector<std::string> names_in(int folder, Takes takes, size_t most, bool& is_cut) {
  std::vector<std::string> names;
  is_cut = false;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), ::closedir);
  if (!listing) {
    ::close(copy);
    return names;
  }
  while (const dirent* entry = ::readdir(listing.get())) {
    if (!takes(entry->d_name)) continue;
    if (names.size() == most) {
      is_cut = true;
      break;
    }
    names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string user_name(uid_t uid) {
  const struct passwd* entry = ::getpwuid(uid);
  return entry != nullptr ? text_safe(entry->pw_name) : std::to_string(uid);
}

// The files of one user. The same counts must come neither twice nor never when a file is folded
// into the totals meanwhile: the writer holds a lock on the totals as long as that takes.
class Folder {
 public:
  Folder(Host& host, std::string path, UniqueFd fd, uid_t uid)
      : host_(host), path_(std::move(path)), fd_(std::move(fd)), uid_(uid) {}

  void read() {
    bool is_steady = false;
    for (int i = 0; i < kTotalsTries && !is_steady; i++) {
      if (i > 0) std::this_thread::sleep_for(kTotalsPause);
      const auto before = totals();
      if (!before.is_steady && i + 1 < kTotalsTries) continue;
      processes_.clear();
      problems_.clear();
      files_read();
      const auto after = totals();
      is_steady =
          before.is_steady && after.is_steady && before.record.head.sum == after.record.head.sum;
      totals_ = after;
    }
    if (!is_steady) problems_.push_back("totals: it changes all the time, so counts may be wrong");
    if (!totals_.problem.empty()) problems_.push_back("totals: " + totals_.problem);
    counters_add(host_.ended, totals_.record.counters);
    for (const auto& line : problems_) note(host_, path_ + "/" + line);
    std::move(processes_.begin(), processes_.end(), std::back_inserter(host_.processes));
  }

 private:
  struct Totals {
    state::TotalsRecord record;
    std::string problem;
    bool is_steady = true;
  };

  Totals totals() {
    Totals found;
    std::string why;
    const UniqueFd file = state::file_open(fd_.get(), state::kTotalsName, {uid_}, why);
    found.problem = why.empty() ? "" : why.substr(why.find(": ") + 2);
    if (!file) return found;
    found.is_steady = lock_holder(file.get()) == 0;
    found.problem = totals_read(file.get(), found.record);
    if (!found.problem.empty()) found.record = {};
    return found;
  }

  void files_read() {
    const auto is_state = [](std::string_view name) { return name.ends_with(state::kStateEnd); };
    bool is_cut = false;
    size_t places = kPlacesMax;
    for (const auto& name : names_in(fd_.get(), is_state, state::kFilesMax, is_cut)) {
      std::string why;
      const UniqueFd file = state::file_open(fd_.get(), name, {uid_}, why);
      if (!why.empty()) problems_.push_back(why);
      if (!file) continue;  // or it has gone meanwhile
      Process process;
      process.uid = uid_;
      process.name = name.substr(0, name.size() - (sizeof state::kStateEnd - 1));
      why = process_read(file.get(), places, process);
      if (!why.empty()) {
        if (!is_gone(file.get())) problems_.push_back(name + ": " + why);
        continue;
      }
      if (process.damaged > 0)
        problems_.push_back(name + ": " + count_of(process.damaged, "damaged record"));
      processes_.push_back(std::move(process));
    }
    if (is_cut) problems_.push_back(": more than " + std::to_string(state::kFilesMax) + " files");
  }

  // A file that a process has removed or not yet filled is no problem.
  static bool is_gone(int file) {
    struct stat status {};
    return ::fstat(file, &status) == 0 &&
           (status.st_nlink == 0 || (status.st_size == 0 && lock_holder(file) != 0));
  }

  Host& host_;
  std::string path_;
  UniqueFd fd_;
  uid_t uid_;
  std::vector<Process> processes_;
  std::vector<std::string> problems_;
  Totals totals_;
};

void user_read(Host& host, const std::string& base, uid_t uid) {
  const std::string path = state::user_directory(base, uid);
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT) return;
  std::string why;
  UniqueFd fd = state::directory_open(base, uid, false, why);
  if (!fd) return note(host, why);
  User user{uid, user_name(uid), {}};
  user.drained = drained_file_read(fd.get(), state::kDrainedName, {0, uid}, why);
  if (!why.empty()) note(host, path + "/" + why);
  host.users.push_back(std::move(user));
  Folder(host, path, std::move(fd), uid).read();
}

std::optional<uid_t> uid_of(std::string_view name) {
  constexpr std::string_view kBegin = "shift-";
  uint32_t uid = 0;
  if (!name.starts_with(kBegin) || !number_read(name.substr(kBegin.size()), 10, uid)) return {};
  // Another spelling of the number would be another folder for the same user.
  return std::to_string(uid) == name.substr(kBegin.size()) ? std::optional<uid_t>(uid)
                                                           : std::nullopt;
}

}  // namespace

const std::string& Host::user_of(uid_t uid) const {
  static const std::string unknown = "?";
  for (const User& user : users)
    if (user.uid == uid) return user.name;
  return unknown;
}

std::string Host::drained_by(uid_t uid, const std::string& nic) const {
  if (drained.contains(nic)) return "root";
  for (const User& user : users)
    if (user.uid == uid && user.drained.contains(nic)) return user.name;
  return "";
}

Place Place::of(const std::string& option) {
  if (!option.empty()) return {option, ::geteuid()};
  std::vector<std::string> warnings;  // shiftctl config shows what is in force
  const auto env = [](const char* key) -> const char* { return std::getenv(key); };
  std::string base = config_read(env, kConfigFile, warnings).state_dir;
  return {base.empty() ? state::kDefaultBase : std::move(base), ::geteuid()};
}

Host host_read(const Place& place) {
  Host host;
  const UniqueFd base(::open(place.base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!base) {
    note(host, place.base + ": " + std::strerror(errno));
    return host;
  }
  std::string why;
  host.drained = drained_file_read(base.get(), state::kHostDrainedName, {0}, why);
  if (!why.empty()) note(host, place.base + "/" + why);
  if (place.uid != 0) {
    user_read(host, place.base, place.uid);
    return host;
  }
  bool is_cut = false;
  const auto names = names_in(
      base.get(), [](const char* name) { return uid_of(name).has_value(); }, kUsersMax, is_cut);
  for (const auto& name : names) user_read(host, place.base, *uid_of(name));
  if (is_cut) note(host, place.base + ": more than " + std::to_string(kUsersMax) + " users");
  return host;
}

}  // namespace shift::ctl

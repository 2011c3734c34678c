#include "drained_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "file_replace.h"
#include "state/directory.h"
#include "util/trim.h"

namespace shift::ctl {

namespace {

std::string text_read(int fd) {
  std::string text(state::kDrainedMax, '\0');
  size_t used = 0;
  while (used < text.size()) {
    const ssize_t n = ::read(fd, text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    used += static_cast<size_t>(n);
  }
  text.resize(used);
  return text;
}

std::string text_write(int directory, const char* name, const std::set<std::string>& nics,
                       mode_t mode) {
  if (nics.empty()) {
    if (::unlinkat(directory, name, 0) == 0 || errno == ENOENT) return "";
    return std::string(name) + ": " + std::strerror(errno);
  }
  std::string text;
  for (const auto& nic : nics) text += nic + "\n";
  if (text.size() > state::kDrainedMax) return "too many NICs are drained already";
  return file_replace(directory, name, text, mode);
}

}  // namespace

bool is_device_name(std::string_view name) {
  constexpr std::string_view kSigns =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  return !name.empty() && name.size() < std::tuple_size_v<state::DeviceName> &&
         name.find_first_not_of(kSigns) == std::string_view::npos;
}

std::set<std::string> drained_file_read(int directory, const char* name,
                                        const std::set<uid_t>& owners, std::string& problem) {
  std::set<std::string> nics;
  const UniqueFd file = state::file_open(directory, name, owners, problem);
  if (!file) return nics;
  const std::string text = text_read(file.get());
  std::string_view left = text;
  while (!left.empty()) {
    const size_t end = left.find('\n');
    const std::string_view line = trim(left.substr(0, end));
    left = end == std::string_view::npos ? std::string_view{} : left.substr(end + 1);
    if (is_device_name(line)) nics.emplace(line);
  }
  return nics;
}

std::string drained_file_change(const Place& place, const std::string& nic, bool is_drained,
                                bool& was_there) {
  std::string problem;
  // Two that change an order at a time would undo each other's work, so both wait for a lock on the
  // caller's folder, which nobody else can open to keep them waiting.
  const UniqueFd own = state::directory_open(place.base, place.uid, true, problem);
  if (!own) return problem;
  while (::flock(own.get(), LOCK_EX) != 0)
    if (errno != EINTR) return place.base + ": " + std::strerror(errno);
  const bool is_root = place.uid == 0;
  const UniqueFd base(::open(place.base.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!base) return place.base + ": " + std::strerror(errno);
  const int directory = is_root ? base.get() : own.get();
  const char* const name = is_root ? state::kHostDrainedName : state::kDrainedName;
  // An order that cannot be believed holds for nobody, so the new one takes its place.
  auto nics = drained_file_read(directory, name, {0, place.uid}, problem);
  was_there = nics.contains(nic);
  if (is_drained)
    nics.insert(nic);
  else
    nics.erase(nic);
  if (was_there == is_drained && problem.empty()) return "";
  return text_write(directory, name, nics, is_root ? 0644 : 0600);
}

}  // namespace shift::ctl

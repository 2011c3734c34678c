// One file in the dynamic linker's configuration switches SHIFT on. It is this program's, and not
// of a package, since a package's configuration files outlive its removal.
#include "enabling.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>

#include "../shift-run/front_dir.h"
#include "linker.h"
#include "util/unique_fd.h"

namespace shift::system {

namespace fs = std::filesystem;

namespace {

std::string conf_text() {
  return "# Made by shift-system enable; shift-system disable removes it.\n" +
         std::string(kFrontDir) + "\n";
}

std::optional<std::string> file_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string because(const fs::path& path, int error) {
  return path.string() + ": " + strerror(error);
}

// The linker reads *.conf only.
fs::path new_conf(const Layout& layout) {
  return layout.at(kConf).string() + ".new";
}

// Two processes that change the configuration at a time would undo each other's work.
std::string lock(const Layout& layout, UniqueFd& held) {
  const fs::path folder = layout.at(kConfDir);
  held = UniqueFd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!held) return because(folder, errno);
  while (flock(held.get(), LOCK_EX) != 0)
    if (errno != EINTR) return because(folder, errno);
  unlink(new_conf(layout).c_str());  // of a run that was killed
  return "";
}

// After a crash, either all of the new text is there, or the old file is as it was.
std::string conf_write(const Layout& layout, const std::string& text) {
  const fs::path path = layout.at(kConf);
  const fs::path made = new_conf(layout);
  UniqueFd fd(open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return because(made, errno);
  const bool is_written = write(fd.get(), text.data(), text.size()) == ssize_t(text.size()) &&
                          fchmod(fd.get(), 0644) == 0 && fsync(fd.get()) == 0;
  if (is_written && rename(made.c_str(), path.c_str()) == 0) return "";
  const int error = errno;
  unlink(made.c_str());
  return because(path, error);
}

std::string conf_remove(const Layout& layout) {
  const fs::path path = layout.at(kConf);
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return "";
  return because(path, errno);
}

// Set-user-ID programs load from this folder, too, so nobody but root may change what is in it.
std::string check_owner(const fs::path& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return because(path, errno);
  if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return path.string() + ": others than root may write to it";
  return "";
}

// Whether the fronts and what they stand before are there and are what they ought to be. A front
// that is its own stock library would never end its start.
std::string check_fronts(const Layout& layout) {
  const fs::path folder = layout.at(kFrontDir);
  if (const auto problem = check_owner(folder); !problem.empty()) return problem;
  for (const Front& front : kFronts) {
    const fs::path file = folder / front.name;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    if (const auto problem = check_owner(file); !problem.empty()) return problem;
    if (fs::equivalent(file, layout.at(front.stock), ignored))
      return file.string() + " is the stock library itself";
  }
  if (!run::is_front(folder / "libibverbs.so.1"))
    return folder.string() + " has no libibverbs.so.1 of SHIFT";
  const fs::path stock = layout.at(SHIFT_STOCK_LIBIBVERBS);
  std::error_code ignored;
  if (!fs::exists(stock, ignored)) return "there is no stock library " + stock.string();
  if (run::is_front(stock)) return stock.string() + " is not the stock library, but SHIFT's";
  return "";
}

// Before the cache is made anew, programs find the libraries as before; so a mistake shows here,
// and not in programs.
std::string renew_and_check(const Layout& layout, State wanted) {
  if (const auto problem = linker_renew(layout); !problem.empty()) return problem;
  const Standing now = standing_read(layout);
  if (now.state == wanted) return "";
  return now.problem.empty() ? "programs find other libraries than they should" : now.problem;
}

}  // namespace

Standing standing_read(const Layout& layout) {
  Standing standing;
  standing.problem = linker_read(layout, standing.found);
  const std::string conf(kConf);
  const auto text = file_text(layout.at(kConf));
  bool is_one_found = false;
  std::string other;  // a library that programs find in the place of a front that is there
  for (const Front& front : kFronts) {
    const auto found = standing.found.find(front.name);
    const std::string path = found == standing.found.end() ? "nothing" : found->second;
    std::error_code ignored;
    if (fs::path(path).parent_path() == kFrontDir)
      is_one_found = true;
    else if (fs::exists(layout.at(kFrontDir) / front.name, ignored) && other.empty())
      other = "programs find " + path + " where they should find SHIFT's " + front.name;
  }
  if (!standing.problem.empty())
    standing.state = State::kBetween;
  else if (!text && !is_one_found)
    standing.state = State::kOff;
  else if (text == conf_text() && is_one_found && other.empty())
    standing.state = State::kOn;
  else
    standing.state = State::kBetween;
  if (standing.state != State::kBetween || !standing.problem.empty()) return standing;
  if (!text)
    standing.problem = "programs find SHIFT, although there is no " + conf;
  else if (text != conf_text())
    standing.problem = conf + " is not as shift-system writes it";
  else
    standing.problem = other.empty() ? "there are no fronts in " + std::string(kFrontDir) : other;
  return standing;
}

std::string enable(const Layout& layout) {
  UniqueFd held;
  if (const auto problem = lock(layout, held); !problem.empty()) return problem;
  if (const auto problem = check_fronts(layout); !problem.empty()) return problem;
  const auto before = file_text(layout.at(kConf));
  if (before != conf_text())
    if (const auto problem = conf_write(layout, conf_text()); !problem.empty()) return problem;
  const std::string problem = renew_and_check(layout, State::kOn);
  if (problem.empty()) return "";
  const std::string undone = before ? conf_write(layout, *before) : conf_remove(layout);
  if (const auto renewed = linker_renew(layout); !undone.empty() || !renewed.empty())
    return problem + "; and " + (undone.empty() ? renewed : undone);
  return problem;
}

std::string disable(const Layout& layout) {
  UniqueFd held;
  if (const auto problem = lock(layout, held); !problem.empty()) return problem;
  if (const auto problem = conf_remove(layout); !problem.empty()) return problem;
  return renew_and_check(layout, State::kOff);
}

}  // namespace shift::system

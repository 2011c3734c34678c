// Reads what is mapped into each process. A process may live in a container of its own, so its
// files are looked up as it sees them.
#include "processes.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>

#include "../shift-run/front_dir.h"

namespace shift::system {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kDeleted = " (deleted)";

struct Mapped {
  std::string file;
  std::string identity;  // device and inode: many processes have the same file
  bool is_deleted;
};

// The mapped files whose name is a libibverbs'. Sets `error` if the process cannot be looked at.
std::vector<Mapped> libraries_of(const fs::path& process, int& error) {
  std::vector<Mapped> found;
  errno = 0;
  std::ifstream maps(process / "maps");
  std::string line;
  while (std::getline(maps, line)) {
    const auto slash = line.find('/');
    if (slash == std::string::npos) continue;
    Mapped one{line.substr(slash), "", line.ends_with(kDeleted)};
    if (one.is_deleted) one.file.resize(one.file.size() - kDeleted.size());
    if (!fs::path(one.file).filename().string().starts_with("libibverbs.so")) continue;
    // ADDRESSES PERMISSIONS OFFSET DEVICE INODE PATH
    size_t begin = 0;
    for (int field = 0; field < 3; field++) begin = line.find(' ', begin) + 1;
    one.identity = line.substr(begin, line.find_last_not_of(' ', slash - 1) + 1 - begin);
    if (std::none_of(found.begin(), found.end(),
                     [&](const Mapped& other) { return other.identity == one.identity; }))
      found.push_back(one);
  }
  error = maps.is_open() && !maps.bad() ? 0 : errno;
  return found;
}

std::string name_of(const fs::path& process) {
  std::string name;
  std::ifstream file(process / "comm");
  std::getline(file, name);
  return name;
}

class Reader {
 public:
  void look(const fs::path& process, int pid) {
    int error = 0;
    const auto libraries = libraries_of(process, error);
    if (error == EACCES || error == EPERM) all_.unknown++;
    if (libraries.empty()) return;
    const auto front = std::find_if(libraries.begin(), libraries.end(),
                                    [&](const Mapped& one) { return is_front(process, one); });
    if (front == libraries.end()) {
      all_.without.push_back({pid, name_of(process), libraries.front().file});
      return;
    }
    all_.with++;
    if (front->is_deleted) all_.old.push_back({pid, name_of(process), front->file});
  }

  Processes take() {
    const auto by_pid = [](const Process& a, const Process& b) { return a.pid < b.pid; };
    std::sort(all_.without.begin(), all_.without.end(), by_pid);
    std::sort(all_.old.begin(), all_.old.end(), by_pid);
    return std::move(all_);
  }

 private:
  bool is_front(const fs::path& process, const Mapped& library) {
    if (fs::path(library.file).parent_path() == kFrontDir) return true;
    if (library.is_deleted) return false;
    const auto [place, is_new] = known_.try_emplace(library.identity, false);
    if (is_new)
      place->second = run::is_front(process / "root" / fs::path(library.file).relative_path());
    return place->second;
  }

  Processes all_;
  std::map<std::string, bool> known_;  // by their identities
};

}  // namespace

Processes processes_read(const Layout& layout) {
  Reader reader;
  std::error_code error;
  // Processes end while they are looked at.
  for (fs::directory_iterator it(layout.at("/proc"), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    int pid = 0;
    const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad == std::errc() && rest == name.data() + name.size()) reader.look(it->path(), pid);
  }
  return reader.take();
}

}  // namespace shift::system

// Runs ldconfig, whose format of the cache is nobody else's business.
#include "linker.h"

#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "util/unique_fd.h"

extern char** environ;

namespace shift::system {
namespace {

// By its path: /sbin is not in the PATH of every administrator.
constexpr char kLdconfig[] = "/sbin/ldconfig";

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const ssize_t n = read(fd, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(part.data(), static_cast<size_t>(n));
  }
}

// Runs ldconfig with `option`, and keeps what it prints.
std::string ldconfig(const Layout& layout, const char* option, std::string& printed) {
  std::vector<const char*> words{kLdconfig};
  if (!layout.root.empty()) words.insert(words.end(), {"-r", layout.root.c_str()});
  words.insert(words.end(), {option, nullptr});
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::string("pipe: ") + strerror(errno);
  UniqueFd reading(ends[0]), writing(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, kLdconfig, &actions, nullptr, const_cast<char**>(words.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  const std::string program = kLdconfig;
  if (error != 0) return program + ": " + strerror(error);
  writing.reset();
  printed = read_all(reading.get());
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0 ? "" : program + " failed";
}

// What tells architectures apart in a file's head; empty if it is no program and no library.
std::string architecture(const std::filesystem::path& file) {
  constexpr size_t kMachine = offsetof(Elf64_Ehdr, e_machine);
  std::string bytes(kMachine + sizeof(Elf64_Half), '\0');
  if (!std::ifstream(file, std::ios::binary).read(bytes.data(), ssize_t(bytes.size()))) return "";
  return bytes.substr(0, EI_VERSION) + bytes.substr(kMachine);
}

}  // namespace

std::string linker_renew(const Layout& layout) {
  std::string printed;
  return ldconfig(layout, "-X", printed);
}

std::string linker_read(const Layout& layout, std::map<std::string, std::string>& found) {
  std::string printed;
  if (const auto problem = ldconfig(layout, "-p", printed); !problem.empty()) return problem;
  const std::string own = architecture("/proc/self/exe");  // the cache has all architectures
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find_first_not_of(" \t");
    const auto arrow = line.find(" => ");
    if (begin == std::string::npos || arrow == std::string::npos) continue;
    const std::string name = line.substr(begin, line.find(' ', begin) - begin);
    const std::string path = line.substr(arrow + 4);
    const bool is_wanted = std::any_of(std::begin(kFronts), std::end(kFronts),
                                       [&](const Front& front) { return name == front.name; });
    if (is_wanted && architecture(layout.at(path)) == own) found.emplace(name, path);
  }
  return "";
}

}  // namespace shift::system

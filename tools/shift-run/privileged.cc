#include "privileged.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace shift::run {
namespace {

bool is_program(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// Empty if there is no such program.
std::string program_find(const std::string& command) {
  if (command.find('/') != std::string::npos) return command;
  const char* path = getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + command;
    if (is_program(file)) return file;
  }
  return "";
}

}  // namespace

std::string unreachable_because(const std::string& command) {
  const std::string file = program_find(command);
  struct stat status = {};
  if (stat(file.c_str(), &status) != 0) return "";
  const bool other_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid();
  const bool other_group = (status.st_mode & S_ISGID) != 0 && status.st_gid != getegid();
  if (other_user || other_group) return file + " is set-user-ID or set-group-ID";
  // File capabilities add nothing for root.
  const bool is_capable = getxattr(file.c_str(), "security.capability", nullptr, 0) > 0;
  if (is_capable && getuid() != 0) return file + " has file capabilities";
  return "";
}

}  // namespace shift::run

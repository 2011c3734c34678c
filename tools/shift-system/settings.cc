// Reads the file with the layer's own parser.
#include "settings.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "util/config.h"
#include "util/job_keys.h"
#include "util/unique_fd.h"

namespace shift::system {

Settings settings_check(const Layout& layout) {
  Settings settings;
  const std::string file = layout.at(kConfigFile);
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd && errno == ENOENT) return settings;
  settings.exists = true;
  struct stat status = {};
  if (!fd || fstat(fd.get(), &status) != 0) {
    settings.problems.push_back(file + ": " + strerror(errno));
    return settings;
  }
  if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    settings.problems.push_back(file + ": others than root may change every program's settings");
  if ((status.st_mode & S_IROTH) == 0)
    settings.problems.push_back(file + ": programs of other users cannot read it");
  const Config config = config_read(nullptr, file.c_str(), settings.problems);
  std::string problem;
  if (config.key_file && !JobKeys::read(layout.at(*config.key_file), problem))
    settings.problems.push_back("SHIFT_KEY_FILE: " + problem);
  return settings;
}

}  // namespace shift::system

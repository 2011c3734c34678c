// A folder that goes with the test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace shift::ctl::test {

class Scratch {
 public:
  Scratch() {
    std::string path = (std::filesystem::temp_directory_path() / "shiftctl.XXXXXX").string();
    path_ = ::mkdtemp(path.data()) != nullptr ? path : "";
  }
  ~Scratch() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace shift::ctl::test

// What the tool runs as programs of their own, because they need another libibverbs than its own:
// the one with the layer.
#pragma once

#include <string>
#include <vector>

#include "check.h"

namespace shift::verify {

// "shift-verify internal WHAT ...". Returns the exit status.
int internal_main(int argc, char** argv);
int internal_cost(const std::string& nic);

// How the test traffic is broken.
enum class Fault { kNone, kError, kLink };
struct Traffic {
  std::string nic, events;
  int fd = -1;
  Fault fault = Fault::kNone;
  std::string down, up;  // commands, for kLink
};
int internal_traffic(const Traffic& traffic);

// Files for a child's log and event records, in a folder of their own that is removed at the end.
struct ChildFiles {
  ChildFiles();
  ~ChildFiles();
  ChildFiles(const ChildFiles&) = delete;
  ChildFiles& operator=(const ChildFiles&) = delete;
  std::string last_line() const;  // of the log

  std::string folder, log, events;
};

// The environment of a program under the layer, with the pair that is looked at.
std::vector<std::string> layer_environment(const Subject& subject, const ChildFiles& files);

}  // namespace shift::verify

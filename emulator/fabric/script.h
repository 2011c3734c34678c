// Scripts of faults: what happens to which NIC, and when. One line is
//
//   TIME[+PERIODxCOUNT] HOST/DEVICE FAULT...
//   TIME[+PERIODxCOUNT] HOST FAULT...
//
// with times from the script's start, such as 500ms, 1.5s, 2m (without a unit: seconds). A line
// with a period happens COUNT times. Empty lines and text after '#' are ignored.
#pragma once

#include <string>
#include <vector>

#include "fabric/host_fault.h"

namespace cxemu {

struct ScriptEvent {
  uint64_t time_ns;  // from the start
  FaultTarget target;
  std::string name;  // of the target
  std::vector<FaultCommand> faults;
  std::string text;  // the faults as written
  int line;
};

// Reads and checks a whole script; its events are returned in the order in which they happen.
// Returns false and a one-line *error ("NAME:LINE: ...") at the first wrong line.
bool script_parse(FabricFile&, const std::string& text, const std::string& name, uint32_t seed,
                  std::vector<ScriptEvent>* events, std::string* error);

}  // namespace cxemu

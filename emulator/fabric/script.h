// Scripts of faults: what happens to which NIC, and when. One line is
//
//   TIME[+PERIODxCOUNT] HOST/DEVICE FAULT...
//
// with times from the script's start, such as 500ms, 1.5s, 2m (without a unit: seconds). A repeated
// line happens COUNT times. Empty lines, and what follows '#', mean nothing.
#pragma once

#include <string>
#include <vector>

#include "fabric/fault.h"

namespace cxemu {

struct ScriptEvent {
  uint64_t time_ns;  // from the start
  FabricNic* nic;
  std::vector<FaultCommand> faults;
  std::string text;  // the faults as written
  int line;
};

// Reads and checks a whole script; its events come out in the order in which they happen. False and
// a one-line *error ("NAME:LINE: ...") at the first line that is wrong.
bool script_parse(FabricFile&, const std::string& text, const std::string& name, uint32_t seed,
                  std::vector<ScriptEvent>* events, std::string* error);

}  // namespace cxemu

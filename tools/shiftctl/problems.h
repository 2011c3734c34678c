// What is wrong on the host, one line for each thing: for status and health alike.
#pragma once

#include <string>
#include <vector>

#include "host.h"

namespace shift::ctl {

enum class Severity : uint8_t {
  kDegraded,  // something is not protected, or has lost what protects it
  kFailed,    // a protected QP has failed, or the state cannot be read
};

struct Problem {
  Severity severity = Severity::kDegraded;
  std::string text;
};

// QPs of one process with the same trouble share a line. Of processes that have ended, nothing is a
// problem any more.
std::vector<Problem> problems_of(const Host& host);

// "process 4711 (ib_write_bw)".
std::string name_of(const Process& process);

// How many QPs of live processes have each standing.
std::vector<unsigned> standings_of(const Host& host);

}  // namespace shift::ctl

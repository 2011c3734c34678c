// Runs work in a process of its own, so that a NIC that does not answer, or a driver that crashes,
// ends one check and not the tool.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "check.h"

namespace shift::verify {

class Job {
 public:
  // Starts a process that does the work and hands over what it returns.
  explicit Job(const std::function<Outcome()>& work);
  // Ends the process, with all that it has started.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Called while the result is awaited, several times a second.
  using Progress = std::function<void(double seconds)>;
  // The work's result; a failure when the process crashes, or is not ready in time.
  Outcome result(std::chrono::seconds patience, const Progress& progress);

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
};

nlohmann::json outcome_to_json(const Outcome& outcome);
// Of another process or host: what is missing or wrong makes a failure.
Outcome outcome_from_json(const nlohmann::json& json);
const char* verdict_name(Verdict verdict);

// Ends this process when its parent does, as whoever waits for its result.
void die_with_parent();
// Runs a program until it ends, with `fd` open if it is not negative. Returns what it writes to its
// standard output; its standard error goes to the file. `env`: NAME=VALUE, or NAME to unset it.
std::string program_run(const std::vector<std::string>& words, const std::vector<std::string>& env,
                        int fd, const std::string& errors, int& status);
// The same in place of this process. Does not return.
[[noreturn]] void program_become(const std::vector<std::string>& words,
                                 const std::vector<std::string>& env, int fd);
// The file of this program, and of shift-run beside it or in PATH.
std::string own_program();
std::string shift_run_program();

}  // namespace shift::verify

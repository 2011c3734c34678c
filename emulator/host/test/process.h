// Runs programs for end-to-end tests and handles their output as lines, their input and their end.
// Every wait has a deadline and ends as soon as its condition holds.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace cxemu {

inline constexpr std::chrono::seconds kPatience{60};

class Process {
 public:
  // stdout and stderr are read together.
  explicit Process(const std::vector<std::string>& command);
  ~Process();  // kills the program if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send_line(const std::string& line);
  void signal_send(int number);
  // Waits for a line that contains `text`; returns an empty string when the program ends or the
  // time is up.
  std::string line_wait(const std::string& text, std::chrono::milliseconds patience = kPatience);
  // Waits for the end. Returns the exit status, 128 + signal, or -1 when the time is up.
  int end_wait();
  const std::string& output() const { return output_; }

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);

  int pid_ = -1;
  int in_ = -1, out_ = -1;
  std::string output_;
  size_t seen_ = 0;  // where the next line_wait looks from
};

// Runs a command to its end; returns its status, and its output in *output.
int run(const std::vector<std::string>& command, std::string* output = nullptr);
// Waits until a condition in shared memory or in the system holds.
bool wait_until(const std::function<bool()>& condition);
// port_free: a TCP port that is free now. port_listening: whether some process listens on the port.
int port_free();
bool port_listening(int port);

}  // namespace cxemu

// What the user sees: a line for each result, or one JSON document.
#pragma once

#include <string>
#include <vector>

#include "check.h"

namespace shift::verify {

inline constexpr int kReportVersion = 1;

struct Result {
  const Check* check;
  std::string where;  // "mlx5_0", "there mlx5_0", "mlx5_0 > mlx5_1", or "host"
  std::string host, nic, peer_nic;
  double seconds = 0;
  Outcome outcome;
};

class Report {
 public:
  explicit Report(bool is_json);
  // Shows that a check runs, where somebody watches.
  void begin(const Check& check, const std::string& where);
  void progress(const Check& check, const std::string& where, double seconds);
  void add(Result result);
  // Prints what is left to say. Returns the exit status.
  int end();

 private:
  void clear_progress();
  void explain(const Check& check, const Outcome& outcome);

  const bool is_json_, is_watched_;
  bool has_progress_ = false;
  std::vector<Result> results_;
  std::vector<std::string> explained_;
};

// What --list prints.
std::string list_text();

}  // namespace shift::verify

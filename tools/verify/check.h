// What a check is, and what it finds. checks.cc lists all of them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace shift::verify {

class Wire;

enum class Verdict : uint8_t { kOk, kSkipped, kWarning, kFailure };

struct Outcome {
  Verdict verdict = Verdict::kFailure;
  std::string text;  // one line: the reason, or what was seen
  // What was measured, for programs.
  std::vector<std::pair<std::string, double>> figures;
  // In place of the check's own words, where these are too strong.
  std::string means, advice;
};

inline Outcome outcome(Verdict verdict, std::string text) {
  Outcome made;
  made.verdict = verdict;
  made.text = std::move(text);
  return made;
}
inline Outcome ok(std::string text) {
  return outcome(Verdict::kOk, std::move(text));
}
inline Outcome skipped(std::string text) {
  return outcome(Verdict::kSkipped, std::move(text));
}
inline Outcome warning(std::string text) {
  return outcome(Verdict::kWarning, std::move(text));
}
inline Outcome failure(std::string text) {
  return outcome(Verdict::kFailure, std::move(text));
}
// The layer copes with it, at this price.
inline Outcome coped_with(std::string text, std::string means) {
  Outcome made = warning(std::move(text));
  made.means = std::move(means);
  made.advice = "Nothing has to be done.";
  return made;
}

// What the user asked for, as far as checks have to know it.
struct Wishes {
  double memory_gib = 0;           // that programs will register; 0: not said
  bool breaks_link = false;        // --link
  std::string link_down, link_up;  // the commands for it; empty: `ip link`, for root
};

// What a check looks at.
struct Subject {
  Wishes wishes;
  std::vector<std::string> nics;  // of this host: the two that would back each other
  std::string nic;                // this host's NIC whose turn it is; empty for a check of the host
  std::string peer_nic;           // and the peer's, for a check of a path
  bool is_one_host = true;
  bool is_straight = true;  // both NICs of a path have the same rank
};

// How often a check runs.
enum class Scope : uint8_t {
  kHost,   // once on each host
  kNic,    // for each NIC of each host
  kPath,   // for each pair of a NIC here and a NIC there
  kRail,   // for the pairs of NICs of equal rank only
  kHosts,  // once for both hosts
};

struct Check {
  const char* name;
  const char* topic;
  Scope scope;
  int seconds;                     // a check that takes longer has failed
  const char* assumes;             // what the layer takes for granted
  const char* means;               // what it would do wrong otherwise
  const char* advice;              // what helps
  Outcome (*run)(const Subject&);  // for kHost and kNic
  // For the other scopes: the end that judges, and the one that does what it is asked to do.
  Outcome (*ask)(const Subject&, Wire&);
  void (*answer)(const Subject&, Wire&);
};

const std::vector<Check>& checks();
const Check* check_find(const std::string& name);

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

}  // namespace shift::verify

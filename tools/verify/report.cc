#include "report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runner.h"

namespace shift::verify {
namespace {

constexpr size_t kColumns = 100;
enum ExitStatus { kExitGood = 0, kExitFailure = 1, kExitNothing = 3 };

// Breaks a paragraph into lines that begin with `head`, and then with as many blanks.
std::string wrap(const std::string& head, const std::string& paragraph) {
  std::istringstream words(paragraph);
  std::string out, line = head;
  for (std::string word; words >> word;) {
    if (line.size() + word.size() + 1 > kColumns) {
      out += line + "\n";
      line = std::string(head.size(), ' ');
    }
    line += (line.back() == ' ' ? "" : " ") + word;
  }
  return out + line + "\n";
}

std::string means_of(const Check& check, const Outcome& outcome) {
  return outcome.means.empty() ? check.means : outcome.means;
}
std::string advice_of(const Check& check, const Outcome& outcome) {
  return outcome.advice.empty() ? check.advice : outcome.advice;
}

}  // namespace

Report::Report(bool is_json) : is_json_(is_json), is_watched_(isatty(STDERR_FILENO) != 0) {}

void Report::begin(const Check& check, const std::string& where) {
  progress(check, where, 0);
}

void Report::progress(const Check& check, const std::string& where, double seconds) {
  if (!is_watched_) return;
  std::fprintf(stderr, "\r\033[K%zu checks done; %s, %s: %.0f s", results_.size(), check.name,
               where.c_str(), seconds);
  std::fflush(stderr);
  has_progress_ = true;
}

void Report::clear_progress() {
  if (has_progress_) std::fprintf(stderr, "\r\033[K");
  has_progress_ = false;
}

void Report::explain(const Check& check, const Outcome& outcome) {
  const std::string words = wrap("         assumed: ", check.assumes) +
                            wrap("         means:   ", means_of(check, outcome)) +
                            wrap("         do:      ", advice_of(check, outcome));
  if (std::ranges::find(explained_, words) != explained_.end()) return;
  explained_.push_back(words);
  std::fputs(words.c_str(), stdout);
}

void Report::add(Result result) {
  clear_progress();
  results_.push_back(std::move(result));
  if (is_json_) return;
  const Result& one = results_.back();
  const Verdict verdict = one.outcome.verdict;
  const char* word = verdict == Verdict::kFailure ? "FAILURE" : verdict_name(verdict);
  std::printf("%-8s %-16s %-20s %s\n", word, one.check->name, one.where.c_str(),
              one.outcome.text.c_str());
  if (verdict == Verdict::kWarning || verdict == Verdict::kFailure)
    explain(*one.check, one.outcome);
  std::fflush(stdout);
}

int Report::end() {
  clear_progress();
  const auto count = [this](Verdict verdict) {
    return std::ranges::count_if(
        results_, [verdict](const Result& one) { return one.outcome.verdict == verdict; });
  };
  const auto good = count(Verdict::kOk), warnings = count(Verdict::kWarning),
             failures = count(Verdict::kFailure), left_out = count(Verdict::kSkipped);
  const int status = failures > 0 ? kExitFailure : good + warnings == 0 ? kExitNothing : kExitGood;
  if (!is_json_) {
    std::printf("%td ok, %td warnings, %td failures, %td skipped\n", good, warnings, failures,
                left_out);
    return status;
  }
  nlohmann::json all = nlohmann::json::array();
  for (const Result& one : results_) {
    nlohmann::json line = outcome_to_json(one.outcome);
    line.update({{"check", one.check->name},
                 {"topic", one.check->topic},
                 {"host", one.host},
                 {"nic", one.nic},
                 {"peer_nic", one.peer_nic},
                 {"seconds", one.seconds},
                 {"assumes", one.check->assumes},
                 {"means", means_of(*one.check, one.outcome)},
                 {"advice", advice_of(*one.check, one.outcome)}});
    all.push_back(std::move(line));
  }
  const nlohmann::json document = {
      {"version", kReportVersion}, {"program", SHIFT_VERSION}, {"ok", good},
      {"warnings", warnings},      {"failures", failures},     {"skipped", left_out},
      {"checks", std::move(all)}};
  std::printf("%s\n",
              document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return status;
}

std::string list_text() {
  std::string out;
  for (const Check& check : checks())
    out += wrap(text("%-16s ", check.name), std::string(check.topic) + ": " + check.assumes);
  return out;
}

}  // namespace shift::verify

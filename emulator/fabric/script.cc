// Parses scripts.
#include "fabric/script.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

namespace cxemu {
namespace {

constexpr double kMaxSeconds = 7 * 24 * 3600;
constexpr uint64_t kMaxEvents = 100'000;

bool time_parse(const std::string& text, uint64_t* ns) {
  const size_t unit_at = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, unit_at);
  const std::string unit = unit_at == std::string::npos ? "s" : text.substr(unit_at);
  char* end = nullptr;
  const double value = strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0') return false;
  double seconds;
  if (unit == "us")
    seconds = value / 1e6;
  else if (unit == "ms")
    seconds = value / 1e3;
  else if (unit == "s")
    seconds = value;
  else if (unit == "m")
    seconds = value * 60;
  else
    return false;
  if (seconds > kMaxSeconds) return false;
  *ns = static_cast<uint64_t>(std::llround(seconds * 1e9));
  return true;
}

struct When {
  uint64_t first_ns = 0, period_ns = 0, count = 1;
};

bool when_parse(const std::string& text, When* when) {
  const size_t plus = text.find('+');
  if (!time_parse(text.substr(0, plus), &when->first_ns)) return false;
  if (plus == std::string::npos) return true;
  const size_t cross = text.find('x', plus);
  if (cross == std::string::npos) return false;
  const std::string count = text.substr(cross + 1);
  if (count.empty() || count.size() > 6 ||
      count.find_first_not_of("0123456789") != std::string::npos)
    return false;
  when->count = strtoull(count.c_str(), nullptr, 10);
  return when->count > 0 && time_parse(text.substr(plus + 1, cross - plus - 1), &when->period_ns);
}

// Appends the events of one line; an empty line has none.
bool line_parse(FabricFile& fabric, const std::string& line, uint32_t seed, int number,
                std::vector<ScriptEvent>* events, std::string* error) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::string time, target;
  if (!(stream >> time)) return true;
  When when;
  if (!when_parse(time, &when)) {
    *error = "'" + time + "': wants TIME or TIME+PERIODxCOUNT, times like 500ms, 1.5s or 2m";
    return false;
  }
  if (!(stream >> target)) {
    *error = "wants TIME HOST/DEVICE FAULT... or TIME HOST FAULT...";
    return false;
  }
  ScriptEvent event = {when.first_ns, {}, target, {}, {}, number};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    event.text += (words.empty() ? "" : " ") + word;
    words.push_back(word);
  }
  if (!target_faults_parse(fabric, target, words, seed, &event.target, &event.faults, error))
    return false;
  if (events->size() + when.count > kMaxEvents) {
    *error = "more than " + std::to_string(kMaxEvents) + " events";
    return false;
  }
  for (uint64_t i = 0; i < when.count; ++i) {
    events->push_back(event);
    event.time_ns += when.period_ns;
  }
  return true;
}

}  // namespace

bool script_parse(FabricFile& fabric, const std::string& text, const std::string& name,
                  uint32_t seed, std::vector<ScriptEvent>* events, std::string* error) {
  events->clear();
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line_parse(fabric, line, seed, ++number, events, error)) continue;
    *error = name + ":" + std::to_string(number) + ": " + *error;
    return false;
  }
  if (events->empty()) {
    *error = name + ": no events";
    return false;
  }
  std::stable_sort(events->begin(), events->end(), [](const ScriptEvent& a, const ScriptEvent& b) {
    return a.time_ns < b.time_ns;
  });
  return true;
}

}  // namespace cxemu

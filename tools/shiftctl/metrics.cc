#include "metrics.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>

#include "advice.h"
#include "counters.h"
#include "group/cause.h"
#include "standing.h"
#include "wire/messages.h"

namespace shift::ctl {

namespace {

constexpr size_t kNicsMax = 64;  // whose names get into labels
constexpr size_t kDetectors = static_cast<size_t>(group::Detector::kProbe) + 1;
constexpr size_t kRefusals = static_cast<size_t>(wire::RefuseReason::kKeyMissing) + 1;

// The text so far, and how a metric is written.
class Page {
 public:
  // `type` is counter, gauge or histogram.
  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void value(uint64_t number) { line("", "", std::to_string(number)); }
  void value(const char* label, std::string_view name, uint64_t number) {
    line("", std::string(label) + "=\"" + std::string(name) + "\"", std::to_string(number));
  }
  void line(const char* end, const std::string& labels, const std::string& number) {
    text_ += name_ + end + (labels.empty() ? "" : "{" + labels + "}") + " " + number + "\n";
  }
  void counter(const char* name, const char* help, uint64_t number) {
    begin(name, "counter", help);
    value(number);
  }
  void gauge(const char* name, const char* help, uint64_t number) {
    begin(name, "gauge", help);
    value(number);
  }

  std::string take() { return std::move(text_); }

 private:
  std::string name_, text_;
};

// Microseconds in seconds, exactly.
std::string seconds(uint64_t us) {
  char text[48];
  snprintf(text, sizeof text, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
  std::string_view number = text;
  number = number.substr(0, number.find_last_not_of('0') + 1);
  return std::string(number.ends_with('.') ? number.substr(0, number.size() - 1) : number);
}

// An array of counts with a name for each; those that have no name yet are "other" together.
template <size_t N, typename Name>
void counts_print(Page& page, const char* label, const std::array<uint64_t, N>& counts,
                  size_t first, size_t known, Name name) {
  uint64_t other = 0;
  for (size_t i = 0; i < N; i++) {
    if (i >= first && i < known)
      page.value(label, name(static_cast<uint8_t>(i)), counts[i]);
    else
      other = add(other, counts[i]);
  }
  page.value(label, "other", other);
}

void pauses_print(Page& page, const state::Counters& sum) {
  page.begin("shift_switch_seconds", "histogram",
             "How long changes of path took, from the detection to the end of the replay.");
  uint64_t count = 0;
  for (size_t i = 0; i < sum.pauses.size(); i++) {
    count = add(count, sum.pauses[i]);
    const bool is_last = i == state::Counters::kPauseBounds.size();
    page.line("_bucket",
              "le=\"" + (is_last ? "+Inf" : seconds(state::Counters::kPauseBounds[i])) + "\"",
              std::to_string(count));
  }
  page.line("_sum", "", seconds(sum.pause_us));
  page.line("_count", "", std::to_string(count));
}

void counters_print(Page& page, const state::Counters& sum) {
  page.begin("shift_switches_total", "counter",
             "Changes of path, by what noticed the fault first; probe: a better path or an order.");
  counts_print(page, "detector", sum.switches, 1, kDetectors, detector_name);
  pauses_print(page, sum);
  page.counter("shift_replayed_requests_total", "Requests posted again on another path.",
               sum.replayed);
  page.counter("shift_completed_requests_total", "Requests completed by the peer's word.",
               sum.completed);
  page.begin("shift_failed_qps_total", "counter",
             "Protected QPs whose program was given the original error.");
  counts_print(page, "reason", sum.failed, 0, kRefusals, refusal_name);
  page.counter("shift_drains_called_off_total", "Ways back that were called off.",
               sum.drains_called_off);
  page.counter("shift_protected_qps_total", "QPs that have found their peer.", sum.protected_qps);
  page.counter("shift_qps_without_peer_total", "RC QPs for which no peer was found.",
               sum.unprotected_qps);
  page.counter("shift_stock_qps_made_total", "QPs made that are not protected, such as UD.",
               sum.stock_qps);
}

void qps_print(Page& page, const Host& host) {
  std::array<uint64_t, static_cast<size_t>(Standing::kCount)> standings{};
  std::map<std::string_view, uint64_t> unprotected;
  for (const Advice& advice : all_advice()) unprotected.emplace(advice.label, 0);
  uint64_t live = 0, crashed = 0, lost = 0;
  for (const Process& process : host.processes) {
    live += process.is_live;
    crashed += !process.is_live && process.record.is_closed == 0;
    if (!process.is_live) continue;
    lost = add(lost, process.record.lost_groups);
    for (const state::GroupRecord& group : process.groups) {
      const Standing standing = standing_of(group);
      standings[static_cast<size_t>(standing)]++;
      if (standing == Standing::kUnprotected)
        unprotected[advice_for(problem_of(process, group)).label]++;
    }
  }
  page.gauge("shift_processes", "Processes with SHIFT that run.", live);
  page.gauge("shift_processes_not_closed", "State files of processes that were killed or crashed.",
             crashed);
  page.begin("shift_qps", "gauge", "RC QPs, by how well they are protected.");
  for (size_t i = 0; i < standings.size(); i++)
    page.value("state", to_string(static_cast<Standing>(i)), standings[i]);
  page.gauge("shift_qps_single_path", "QPs that have found their peer, and have no second path.",
             standings[static_cast<size_t>(Standing::kOnePath)]);
  page.begin("shift_unprotected_qps", "gauge", "RC QPs that are not protected, by the reason.");
  for (const auto& [label, count] : unprotected) page.value("reason", label, count);
  page.gauge("shift_untold_qps", "QPs that found no place in the state file.", lost);
}

void nics_print(Page& page, const Host& host) {
  auto nics = nics_of(host);
  if (nics.size() > kNicsMax) nics.resize(kNicsMax);
  const auto print = [&](const char* name, const char* help, auto value) {
    page.begin(name, "gauge", help);
    for (const Nic& nic : nics) page.value("device", nic.name, value(nic));
  };
  print("shift_nic_up", "1 if the NIC can carry traffic for all processes that have it.",
        [](const Nic& nic) { return uint64_t{nic.down == 0}; });
  print("shift_nic_drained", "1 if an order tells processes to leave the NIC.",
        [](const Nic& nic) { return uint64_t{nic.drained > 0 || nic.is_ordered}; });
  print("shift_nic_late", "1 if the NIC has not answered a command in time.",
        [](const Nic& nic) { return uint64_t{nic.late > 0}; });
  print("shift_nic_qps", "RC QPs whose path the NIC carries.",
        [](const Nic& nic) { return uint64_t{nic.qps}; });
  print("shift_nic_stock_qps", "QPs on the NIC that are not protected, such as UD.",
        [](const Nic& nic) { return nic.stock_qps; });
}

}  // namespace

std::string metrics_text(const Host& host) {
  Page page;
  state::Counters sum = host.ended;
  for (const Process& process : host.processes) counters_add(sum, process.record.counters);
  counters_print(page, sum);
  qps_print(page, host);
  nics_print(page, host);
  page.gauge("shift_state_read_errors", "Things in the state folder that could not be read.",
             host.unreadable.size());
  return page.take();
}

}  // namespace shift::ctl

#include "drain.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "drain_plan.h"
#include "drained_file.h"
#include "orders.h"
#include "problems.h"
#include "standing.h"
#include "state/orders.h"
#include "text.h"

namespace shift::ctl {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kDrainPause{50};
constexpr std::chrono::milliseconds kReturn{1'000}, kReturnPause{5};
constexpr size_t kNamed = 10;  // QPs that are named

void complain(const std::string& text) {
  fprintf(stderr, "shiftctl: %s\n", text.c_str());
}

void list_print(const std::vector<std::string>& lines) {
  for (size_t i = 0; i < lines.size() && i < kNamed; i++)
    fprintf(stderr, "  %s\n", lines[i].c_str());
  if (lines.size() > kNamed) fprintf(stderr, "  and %zu more\n", lines.size() - kNamed);
}

// A name with a mistake in it would be an order that nobody ever carries out.
void warn_if_unknown(const DrainPlan& plan, const std::string& nic) {
  std::error_code ignored;
  if (plan.processes == 0 && !std::filesystem::exists("/sys/class/infiniband/" + nic, ignored))
    complain("warning: no process has a NIC " + nic + ", and neither has this host");
}

// Whether the order may be given.
bool is_harmless(const Host& host, const DrainPlan& plan, const std::string& nic) {
  if (!host.unreadable.empty()) {
    complain(nic + " is not drained, since not all can be read (--force does it all the same):");
    list_print(host.unreadable);
    return false;
  }
  if (plan.blocked.empty()) return true;
  complain(nic + " is not drained, since not all can leave it (--force does it all the same):");
  list_print(plan.blocked);
  return false;
}

void processes_tell(const Place& place, const Host& host) {
  for (const Process& process : host.processes) {
    if (!process.is_live) continue;
    const std::string problem = order_send(place, process, state::kOrderLook);
    if (!problem.empty()) complain("warning: " + name_of(process) + " was not told: " + problem);
  }
}

// Says how many are left, on a terminal only.
class Progress {
 public:
  void show(const std::string& text) {
    if (!is_terminal_ || text == last_) return;
    fprintf(stderr, "\r%s\033[K", text.c_str());
    last_ = text;
  }
  void end() {
    if (!last_.empty()) fprintf(stderr, "\r\033[K");
    last_.clear();
  }

 private:
  bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::string last_;
};

// Waits until nothing is left that can leave. What cannot be read may still be there.
DrainPlan departures_await(const Place& place, const DrainOptions& options) {
  const auto end = Clock::now() + options.timeout;
  Progress progress;
  for (;;) {
    const Host host = host_read(place);
    DrainPlan plan = drain_plan(host, options.nic);
    for (const auto& line : host.unreadable) plan.remaining.push_back("cannot be read: " + line);
    if (plan.on_it == 0 || Clock::now() >= end) {
      progress.end();
      return plan;
    }
    progress.show(options.nic + ": " + count_of(plan.on_it, "QP") + " to go");
    std::this_thread::sleep_for(kDrainPause);
  }
}

// The names of the live processes that still keep away from the NIC though no order tells them to
// any more.
std::vector<std::string> abstainers(const Host& host, const std::string& nic) {
  std::vector<std::string> names;
  for (const Process& process : host.processes) {
    if (!process.is_live || !host.drained_by(process.uid, nic).empty()) continue;
    if (is_drained(process, nic)) names.push_back(name_of(process));
  }
  return names;
}

// Waits until the processes have taken the end of the order in, so that whoever asks next is told
// so. A process that is stopped does it when it runs again.
void return_await(const Place& place, const std::string& nic) {
  const auto end = Clock::now() + kReturn;
  for (;;) {
    const auto names = abstainers(host_read(place), nic);
    if (names.empty()) return;
    if (Clock::now() >= end) {
      for (size_t i = 0; i < names.size() && i < kNamed; i++)
        complain("warning: " + names[i] + " has not taken the end of the order in yet");
      return;
    }
    std::this_thread::sleep_for(kReturnPause);
  }
}

int outcome_print(const DrainPlan& plan, const std::string& nic) {
  if (plan.remaining.empty()) {
    printf("%s is idle: no QP that SHIFT moves uses it\n", nic.c_str());
    for (size_t i = 0; i < plan.notes.size() && i < kNamed; i++) puts(plan.notes[i].c_str());
    return 0;
  }
  complain(nic + " is not idle; what is still there:");
  list_print(plan.remaining);
  fprintf(stderr, "The order stands; shiftctl undrain %s takes it back.\n", nic.c_str());
  return kExitProblem;
}

}  // namespace

int drain_run(const Place& place, const DrainOptions& options) {
  const Host host = host_read(place);
  const DrainPlan plan = drain_plan(host, options.nic);
  if (!options.is_forced && !is_harmless(host, plan, options.nic)) return kExitRefused;
  warn_if_unknown(plan, options.nic);
  bool was_there = false;
  const std::string problem = drained_file_change(place, options.nic, true, was_there);
  if (!problem.empty()) {
    complain(options.nic + " is not drained: " + problem);
    return kExitProblem;
  }
  processes_tell(place, host);
  return outcome_print(departures_await(place, options), options.nic);
}

int undrain_run(const Place& place, const std::string& nic) {
  bool was_there = false;
  const std::string problem = drained_file_change(place, nic, false, was_there);
  if (!problem.empty()) {
    complain("the order about " + nic + " stands: " + problem);
    return kExitProblem;
  }
  const Host host = host_read(place);
  processes_tell(place, host);
  if (was_there) return_await(place, nic);
  printf(was_there ? "%s can be used again\n" : "%s was not drained by this user's order\n",
         nic.c_str());
  if (place.uid != 0 && host.drained.contains(nic)) printf("root's order still drains it\n");
  for (const User& user : host.users)
    if (user.uid != place.uid && user.drained.contains(nic))
      printf("the order of %s still drains it for the processes of that user\n", user.name.c_str());
  return 0;
}

int drained_list(const Place& place) {
  const Host host = host_read(place);
  std::vector<std::vector<std::string>> rows{{"NIC", "BY", "QPS LEFT"}};
  const auto add = [&](const std::string& nic, const std::string& by) {
    rows.push_back({nic, by, std::to_string(drain_plan(host, nic).remaining.size())});
  };
  for (const auto& nic : host.drained) add(nic, "root, for all");
  for (const User& user : host.users)
    for (const auto& nic : user.drained) add(nic, user.name);
  if (rows.size() == 1)
    puts("no NIC is drained");
  else
    fputs(table(rows).c_str(), stdout);
  for (const auto& line : host.unreadable) complain("warning: " + line);
  return 0;
}

}  // namespace shift::ctl

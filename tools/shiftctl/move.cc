#include "move.h"

#include <cstdio>
#include <thread>

#include "drain.h"
#include "orders.h"
#include "problems.h"
#include "standing.h"
#include "state/orders.h"
#include "target.h"
#include "text.h"

namespace shift::ctl {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kMovePause{20};

int complain(const std::string& text, int status) {
  fprintf(stderr, "shiftctl: %s\n", text.c_str());
  return status;
}

// Why the QP must not be told to go; empty if it may.
std::string hindrance(const Qp& qp) {
  const std::string problem = problem_of(*qp.process, *qp.group);
  const Standing standing = standing_of(*qp.group);
  if (standing == Standing::kProtected) return "";
  return in_words(standing) + (problem.empty() ? "" : ": " + problem);
}

// Whether the QP is where the order has sent it.
bool is_done(const Qp& qp, bool is_home, uint8_t from) {
  if (is_home) return qp.group->avoided == 0;
  const Standing standing = standing_of(*qp.group);
  const bool is_on_path = standing == Standing::kProtected || standing == Standing::kOnePath;
  return is_on_path && qp.group->member != from;
}

// The one QP that is meant, or none, after a complaint.
std::vector<Qp> qp_find(const Host& host, const std::string& text, int& status) {
  const auto name = qp_name_of(text);
  status = 2;
  if (!name) {
    complain(text + " is no QP: 0x1f and 4711:0x1f are", status);
    return {};
  }
  auto found = qps_of(host, *name);
  status = kExitProblem;
  if (found.size() == 1) return found;
  if (found.empty()) {
    complain("no live process has a QP " + text, status);
    return {};
  }
  std::vector<std::string> names;
  for (const Qp& qp : found)
    names.push_back(std::to_string(qp.process->pid) + ":" + hex(qp.group->qpn) + " on " +
                    text_safe(state::text_of(qp.group->device)));
  complain(text + " is not one QP only: " + list_of(names, 8), status);
  return {};
}

}  // namespace

int move_run(const Place& place, const std::string& text, bool is_home,
             std::chrono::milliseconds timeout) {
  const Host host = host_read(place);
  int status = 0;
  const auto found = qp_find(host, text, status);
  if (found.empty()) return status;
  const Qp qp = found[0];
  const std::string name = "QP " + hex(qp.group->qpn) + " of " + name_of(*qp.process);
  if (!is_home) {
    const std::string why = hindrance(qp);
    if (!why.empty()) return complain(name + " is not moved: it " + why, kExitRefused);
  }
  const std::string order = std::string(is_home ? state::kOrderHome : state::kOrderMove) + " " +
                            hex(qp.group->qpn) + " " +
                            std::string(state::text_of(qp.group->device));
  const std::string problem = order_send(place, *qp.process, order);
  if (!problem.empty()) return complain(name + " is not moved: " + problem, kExitProblem);
  const uint8_t from = qp.group->member;
  for (const auto end = Clock::now() + timeout; Clock::now() < end;
       std::this_thread::sleep_for(kMovePause)) {
    const Host later = host_read(place);
    const auto now = qps_of(later, {qp.process->pid, qp.group->qpn});
    if (now.empty()) return complain(name + " is gone", kExitProblem);
    if (!is_done(now[0], is_home, from)) continue;
    printf(is_home ? "%s keeps away from no NIC; it goes over %s\n" : "%s goes over %s\n",
           name.c_str(), path_of(*now[0].process, *now[0].group).c_str());
    return 0;
  }
  return complain(name + (is_home ? " still keeps away from a NIC" : " is still where it was") +
                      "; its process has the order",
                  kExitProblem);
}

}  // namespace shift::ctl

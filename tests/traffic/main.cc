// shift-traffic: a plain verbs program that judges whatever verbs library it runs on. It knows
// nothing of any layer beneath libibverbs.
#include <poll.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>

#include "monitor.h"
#include "options.h"
#include "peer.h"
#include "selftest.h"
#include "setup.h"
#include "tcp_channel.h"
#include "verbs_transport.h"

namespace traffic {
namespace {

constexpr uint64_t kProgressEveryNs = 10'000'000;

// Nothing to do now: sleep the way a program of this kind would.
void idle(const Traffic& traffic, Peer* peer, VerbsTransport* verbs, TcpChannel* side,
          bool* is_armed) {
  uint64_t now = now_ns(), until = peer->idle_until_ns();
  uint32_t wait_ms = until > now ? static_cast<uint32_t>((until - now) / 1'000'000) : 5;
  if (traffic.events && !peer->is_passive()) {
    if (!*is_armed) {
      *is_armed = verbs->arm();
      return;  // poll once more: a completion may have come before the CQ was armed
    }
    verbs->wait_events(side->fd(), std::min(wait_ms, 5u));
    *is_armed = false;
  } else if (peer->is_passive()) {
    verbs->wait_events(side->fd(), 5);
  } else {
    sched_yield();
  }
}

int drive(const Traffic& traffic, const Local& local, Peer* peer, VerbsTransport* verbs,
          TcpChannel* side, Timeline* timeline) {
  Watchdog watchdog(local.stall_ms + 3000);
  uint64_t deadline = now_ns() + local.timeout_ms * 1'000'000ull, progress_at = 0, printed = 0,
           stdin_at = 0;
  bool is_armed = false;
  while (!peer->is_done()) {
    watchdog.beat();
    bool worked = peer->step();
    uint64_t now = now_ns();
    timeline->add(now, peer->bytes_completed());
    if (now >= progress_at && peer->progress() != printed) {
      printed = peer->progress();
      printf("progress %llu\n", static_cast<unsigned long long>(printed));
      fflush(stdout);
      progress_at = now + kProgressEveryNs;
    }
    if (peer->is_stalled() || now > deadline) {
      printf("HANG %s\n%s", peer->is_stalled() ? "no progress" : "time is over",
             peer->state_text().c_str());
      fflush(stdout);
      return kExitHang;
    }
    if (traffic.until_stop && !local.server.empty() && now >= stdin_at) {
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (poll(&input, 1, 0) == 1) peer->stop();
      stdin_at = now + kProgressEveryNs;
    }
    if (!worked) idle(traffic, peer, verbs, side, &is_armed);
  }
  return peer->exit_code();
}

void result_write(const Traffic& traffic, const Local& local, const Peer& peer,
                  const Report& report, const std::vector<std::string>& events, int code,
                  uint64_t start_ns) {
  nlohmann::json json{{"exit_code", code},
                      {"role", local.server.empty() ? "server" : "client"},
                      {"traffic", traffic},
                      {"progress", peer.progress()},
                      {"bytes", peer.bytes_completed()},
                      {"longest_gap_ms", static_cast<double>(peer.longest_gap_ns()) / 1e6},
                      {"start_ns", start_ns},
                      {"end_ns", now_ns()},
                      {"error", report.first_error()},
                      {"error_ns", report.first_error_ns()},
                      {"all_flushed", peer.is_everything_flushed()},
                      {"async_events", events},
                      {"violations", nlohmann::json::array()}};
  for (const Violation& violation : report.violations())
    json["violations"].push_back({{"name", violation.name}, {"detail", violation.detail}});
  std::ofstream(local.json_path) << json.dump(2) << '\n';
}

int run(Traffic traffic, const Local& local) {
  Report report;
  std::string problem;
  auto side = side_open(local, &traffic, &problem);
  if (!side) {
    fprintf(stderr, "shift-traffic: %s\n", problem.c_str());
    return kExitUsage;
  }
  uint64_t start_ns = now_ns();
  bool is_client = !local.server.empty();
  auto verbs = std::make_unique<VerbsTransport>(traffic, local, is_client, &report);
  if (!verbs->open() || !connect_all(traffic, verbs.get(), side.get(), &report))
    return kExitVerbsError;
  AsyncWatcher watcher(verbs->context(), &report);
  Timeline timeline;
  Peer peer(traffic, is_client, {.stall_ms = local.stall_ms}, verbs.get(), side.get(), &report);
  peer.on_inspect([&] {
    verbs->inspect();
    for (const std::string& event : watcher.events()) report.violation("async-event", event);
  });
  int code = drive(traffic, local, &peer, verbs.get(), side.get(), &timeline);
  watcher.stop();
  if (!local.timeline_path.empty() && !timeline.write_csv(local.timeline_path))
    fprintf(stderr, "shift-traffic: cannot write %s\n", local.timeline_path.c_str());
  if (code != kExitHang) verbs.reset();  // a hung device may hang in here too
  if (code == kExitRight) code = report.exit_code();
  if (!local.json_path.empty())
    result_write(traffic, local, peer, report, watcher.events(), code, start_ns);
  printf("%s %s: %llu messages, longest gap %.1f ms\n", is_client ? "client" : "server",
         code == kExitRight ? "RIGHT" : "WRONG", static_cast<unsigned long long>(peer.progress()),
         static_cast<double>(peer.longest_gap_ns()) / 1e6);
  fflush(stdout);
  if (code == kExitHang) _exit(code);
  return code;
}

}  // namespace
}  // namespace traffic

int main(int argc, char** argv) {
  traffic::Traffic traffic;
  traffic::Local local;
  if (int code = traffic::options_parse(argc, argv, &traffic, &local); code >= 0) return code;
  return local.selftest ? traffic::selftest() : traffic::run(traffic, local);
}

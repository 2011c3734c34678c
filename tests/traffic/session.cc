// Set-up, main loop and result file of a traffic program.
#include "session.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string_view>

#include "monitor.h"

namespace traffic {
namespace {

constexpr uint32_t kSetupMs = 20000;
constexpr uint64_t kProgressEveryNs = 10'000'000;

std::string address_text(const QpAddress& address) {
  std::string text = fmt::format("{} {} ", address.qp_num, address.psn);
  for (uint8_t byte : address.gid.raw) text += fmt::format("{:02x}", byte);
  return text;
}

bool address_parse(const std::string& text, QpAddress* out) {
  char hex[40] = "";
  if (sscanf(text.c_str(), "%u %u %32s", &out->qp_num, &out->psn, hex) != 3) return false;
  for (int i = 0; i < 16; ++i) {
    unsigned byte = 0;
    if (sscanf(hex + i * 2, "%2x", &byte) != 1) return false;
    out->gid.raw[i] = static_cast<uint8_t>(byte);
  }
  return true;
}

// How long an end sleeps at most when it does not know when the next thing happens. Only credits
// that are written into its memory come without an event; all else wakes it, and it shows how late.
uint32_t longest_sleep_ms(const Traffic& traffic) {
  return traffic.credits == Credits::kVerbs ? 5 : 200;
}

// Sleeps, when there was nothing to do at the time `looked_ns`, as a program of this kind would.
// What has become due since then must not wait.
void idle(const Traffic& traffic, End* end, VerbsTransport* verbs, TcpChannel* side,
          uint64_t looked_ns, bool* is_armed) {
  const uint64_t until = end->idle_until_ns(), now = std::min(now_ns(), std::max(until, looked_ns));
  const uint32_t longest = longest_sleep_ms(traffic);
  uint32_t wait_ms = until > looked_ns ? static_cast<uint32_t>((until - now) / 1'000'000) : longest;
  if (traffic.events && !end->is_passive()) {
    if (!*is_armed) {
      *is_armed = verbs->arm();
      return;  // poll again: a completion may have come before arm()
    }
    verbs->wait_events(side->fd(), std::min(wait_ms, longest));
    *is_armed = false;
  } else if (end->is_passive()) {
    verbs->wait_events(side->fd(), 5);
  } else {
    sched_yield();
  }
}

// A line "inspect" has the handles looked at while the run goes on. Any other line stops the run,
// and so does the end of the input.
void hear(End* end, VerbsTransport* verbs) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, 0) != 1) return;
  char line[64];
  const ssize_t length = read(STDIN_FILENO, line, sizeof line);
  if (length <= 0 || std::string_view(line, static_cast<size_t>(length)) != "inspect\n")
    return end->stop();
  verbs->inspect();
  printf("inspected\n");
  fflush(stdout);
}

int drive(const Session& session, End* end, VerbsTransport* verbs, TcpChannel* side,
          Timeline* timeline) {
  const Traffic& traffic = session.verbs;
  const Local& local = session.local;
  Watchdog watchdog(local.stall_ms + 3000);
  uint64_t deadline = now_ns() + local.timeout_ms * 1'000'000ull, progress_at = 0, printed = 0,
           stdin_at = 0;
  bool is_armed = false;
  while (!end->is_done()) {
    watchdog.beat();
    const uint64_t looked_ns = now_ns();
    bool worked = end->step();
    uint64_t now = now_ns();
    timeline->add(now, end->bytes_completed());
    if (now >= progress_at && end->progress() != printed) {
      printed = end->progress();
      printf("progress %llu\n", static_cast<unsigned long long>(printed));
      fflush(stdout);
      progress_at = now + kProgressEveryNs;
    }
    if (end->is_stalled() || now > deadline) {
      printf("HANG %s\n%s", end->is_stalled() ? "no progress" : "time is over",
             end->state_text().c_str());
      fflush(stdout);
      return kExitHang;
    }
    if (traffic.until_stop && session.is_client() && now >= stdin_at) {
      hear(end, verbs);
      stdin_at = now + kProgressEveryNs;
    }
    if (!worked) idle(traffic, end, verbs, side, looked_ns, &is_armed);
  }
  return end->exit_code();
}

void result_write(const Session& session, const End& end, const Report& report,
                  const std::vector<std::string>& events, int code, uint64_t start_ns) {
  nlohmann::json json{{"exit_code", code},
                      {"role", session.is_client() ? "client" : "server"},
                      {"traffic", session.told},
                      {"progress", end.progress()},
                      {"bytes", end.bytes_completed()},
                      {"longest_gap_ms", static_cast<double>(end.pauses().longest_ns()) / 1e6},
                      {"pauses_ns", nlohmann::json::array()},
                      {"start_ns", start_ns},
                      {"end_ns", now_ns()},
                      {"error", report.first_error()},
                      {"error_ns", report.first_error_ns()},
                      {"all_flushed", end.is_everything_flushed()},
                      {"async_events", events},
                      {"violations", nlohmann::json::array()}};
  for (const Pause& pause : end.pauses().kept())
    json["pauses_ns"].push_back({pause.begin_ns, pause.end_ns});
  for (const Violation& violation : report.violations())
    json["violations"].push_back({{"name", violation.name}, {"detail", violation.detail}});
  std::ofstream(session.local.json_path) << json.dump(2) << '\n';
}

}  // namespace

std::unique_ptr<TcpChannel> session_open(const Local& local, nlohmann::json* told,
                                         std::string* error) {
  if (!local.server.empty()) {
    auto side = TcpChannel::connect_to(local.server, local.port, kSetupMs, error);
    if (side) side->send_line(told->dump());
    return side;
  }
  auto side = TcpChannel::accept_one(local.listen, local.port, kSetupMs, error);
  if (!side) return nullptr;
  *told = nlohmann::json::parse(side->wait_line(kSetupMs), nullptr, false);
  if (!told->is_discarded()) return side;
  *error = "the client sent no options";
  return nullptr;
}

bool connect_all(uint32_t qps, const std::function<bool(uint32_t)>& is_loopback,
                 VerbsTransport* verbs, TcpChannel* side, Report* report) {
  for (uint32_t qp = 0; qp < qps; ++qp) side->send_line(address_text(verbs->address(qp)));
  for (uint32_t qp = 0; qp < qps; ++qp) {
    QpAddress remote;
    if (!address_parse(side->wait_line(kSetupMs), &remote)) {
      report->error("the other end sent no address");
      return false;
    }
    if (is_loopback(qp)) remote = verbs->address(qp);
    if (!verbs->connect(qp, remote)) return false;
  }
  return true;
}

int session_run(const Session& session, TcpChannel* side) {
  const Local& local = session.local;
  Report report;
  uint64_t start_ns = now_ns();
  auto verbs = std::make_unique<VerbsTransport>(session.verbs, local, session.is_client(), &report);
  if (!verbs->open() ||
      !connect_all(session.verbs.qps, session.is_loopback, verbs.get(), side, &report))
    return kExitVerbsError;
  AsyncWatcher watcher(verbs->context(), &report);
  Timeline timeline;
  auto end = session.make(verbs.get(), side, &report);
  end->on_inspect([&] {
    verbs->inspect();
    for (const std::string& event : watcher.events()) report.violation("async-event", event);
  });
  int code = drive(session, end.get(), verbs.get(), side, &timeline);
  watcher.stop();
  if (!local.timeline_path.empty() && !timeline.write_csv(local.timeline_path))
    fprintf(stderr, "%s: cannot write %s\n", session.program, local.timeline_path.c_str());
  if (code != kExitHang) verbs.reset();  // a device that hangs may hang here, too
  if (code == kExitRight) code = report.exit_code();
  if (!local.json_path.empty())
    result_write(session, *end, report, watcher.events(), code, start_ns);
  printf("%s %s: %llu messages, longest gap %.1f ms\n", session.is_client() ? "client" : "server",
         code == kExitRight ? "RIGHT" : "WRONG", static_cast<unsigned long long>(end->progress()),
         static_cast<double>(end->pauses().longest_ns()) / 1e6);
  fflush(stdout);
  if (code == kExitHang) _exit(code);
  return code;
}

}  // namespace traffic

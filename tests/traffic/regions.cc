// shift-regions uses regions that come and go: a plain verbs program with shift-traffic's options.
// In each turn the server registers two regions of memory that was used before, and tells the
// client their keys. The client fills both by a WRITE, and the server looks at all of its memory
// and deregisters them. All regions have the same address, so only the key says which memory is
// meant.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

#include "options_json.h"
#include "session.h"

namespace traffic {
namespace {

constexpr uint32_t kSize = 4096;
constexpr uint64_t kAddress = 0x10000000;  // of each region
constexpr uint32_t kAtATime = 2, kAreas = 16;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

uint64_t stamp_of(uint64_t turn, uint32_t which) {
  return 1 + turn * kAtATime + which;
}

void fill(std::byte* area, uint64_t stamp) {
  for (uint32_t i = 0; i < kSize; i += 8) std::memcpy(area + i, &stamp, sizeof stamp);
}

class Regions {
 public:
  Regions(const Local& local, VerbsTransport* verbs, TcpChannel* side, Report* report)
      : local_(local),
        verbs_(verbs),
        side_(side),
        report_(report),
        memory_(verbs->region_add(size_t{kSize} * kAreas)) {}

  // Returns the exit code.
  int run() { return local_.server.empty() ? serve() : send(); }

 private:
  std::byte* area(uint64_t number) { return memory_.slot(number % kAreas, kSize).data(); }

  // ---- client

  bool write_all(uint64_t turn, const std::array<uint32_t, kAtATime>& rkeys) {
    for (uint32_t i = 0; i < kAtATime; i++) {
      fill(area(i), stamp_of(turn, i));
      SendRequest request{};
      request.wr_id = i;
      request.opcode = IBV_WR_RDMA_WRITE;
      request.is_signaled = true;
      request.local = area(i);
      request.length = kSize;
      request.lkey = memory_.lkey;
      request.remote = kAddress;
      request.rkey = rkeys[i];
      size_t taken = 0;
      if (verbs_->post_send(0, {&request, 1}, &taken) != 0) report_->error("post");
    }
    const uint64_t give_up = now_ns() + local_.stall_ms * 1'000'000ull;
    for (uint32_t done = 0; done < kAtATime && !report_->has_error();) {
      ibv_wc wc[kAtATime];
      const int got = verbs_->poll(wc);
      for (int i = 0; i < got; i++, done++) {
        if (wc[i].status == IBV_WC_SUCCESS) continue;
        report_->error(fmt::format("turn {}: {}", turn, ibv_wc_status_str(wc[i].status)));
      }
      if (got == 0) sched_yield();
      if (now_ns() > give_up) return false;
    }
    return true;
  }

  int send() {
    for (bool is_stopping = false; !is_stopping;) {
      const std::string line = side_->wait_line(local_.stall_ms);
      unsigned long long turn = 0;
      std::array<uint32_t, kAtATime> rkeys{};
      if (sscanf(line.c_str(), "turn %llu %u %u", &turn, &rkeys[0], &rkeys[1]) != 3) break;
      if (!write_all(turn, rkeys)) return kExitHang;
      printf("progress %llu\n", turn);
      fflush(stdout);
      pollfd input{STDIN_FILENO, POLLIN, 0};
      is_stopping = ::poll(&input, 1, 0) == 1 || report_->has_error();
      side_->send_line(is_stopping ? "last" : "next");
    }
    const std::string verdict = side_->wait_line(local_.stall_ms);
    if (verdict != "verdict right") report_->violation("server", verdict);
    return report_->exit_code();
  }

  // ---- server

  void look(uint64_t turn) {
    for (uint32_t i = 0; i < kAreas; i++) {
      for (uint32_t byte = 0; byte < kSize; byte += 8) {
        uint64_t found;
        std::memcpy(&found, area(i) + byte, sizeof found);
        if (found == expected_[i]) continue;
        report_->violation("wrong-bytes", fmt::format("turn {} area {} byte {}: {}, not {}", turn,
                                                      i, byte, found, expected_[i]));
        return;
      }
    }
  }

  // One turn. Returns whether there is another one.
  bool turn(uint64_t number) {
    std::array<ibv_mr*, kAtATime> regions{};
    std::string line = fmt::format("turn {}", number);
    for (uint32_t i = 0; i < kAtATime; i++) {
      const uint64_t at = number * kAtATime + i;
      regions[i] = ibv_reg_mr_iova(verbs_->pd(), area(at), kSize, kAddress, kAccess);
      if (regions[i] == nullptr) {
        report_->error("ibv_reg_mr_iova");
        return false;
      }
      again_ += !keys_.insert(regions[i]->rkey).second;
      expected_[at % kAreas] = stamp_of(number, i);
      line += fmt::format(" {}", regions[i]->rkey);
    }
    side_->send_line(line);
    const std::string answer = side_->wait_line(local_.stall_ms);
    look(number);
    for (ibv_mr* region : regions) {
      if (ibv_dereg_mr(region) != 0) report_->error("ibv_dereg_mr");
    }
    return answer == "next" && report_->violation_count() == 0 && !report_->has_error();
  }

  int serve() {
    for (uint64_t number = 0; turn(number);) number++;
    printf("keys that came again: %llu\n", static_cast<unsigned long long>(again_));
    const bool is_right = report_->violation_count() == 0 && !report_->has_error();
    side_->send_line(is_right ? "verdict right" : "verdict wrong");
    return report_->exit_code();
  }

  const Local local_;
  VerbsTransport* const verbs_;
  TcpChannel* const side_;
  Report* const report_;
  Region memory_;
  std::array<uint64_t, kAreas> expected_{};  // the stamp that each area holds
  std::set<uint32_t> keys_;                  // that the server's regions have had
  uint64_t again_ = 0;                       // regions whose key another one had before
};

int run(Traffic traffic, const Local& local) {
  Report report;
  auto side = session_agree("shift-regions", local, &traffic, traffic_problem);
  if (!side) return kExitUsage;
  auto verbs = std::make_unique<VerbsTransport>(traffic, local, !local.server.empty(), &report);
  if (!verbs->open() ||
      !connect_all(traffic.qps, never_loopback, verbs.get(), side.get(), &report)) {
    return kExitVerbsError;
  }
  const int code = Regions(local, verbs.get(), side.get(), &report).run();
  printf("%s %s\n", local.server.empty() ? "server" : "client",
         code == kExitRight  ? "RIGHT"
         : code == kExitHang ? "HANG"
                             : "WRONG");
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
  return traffic::run(traffic, local);
}

// shift-once finds requests that ran twice: a plain verbs program with shift-traffic's options.
//   --op write: the server polls the memory that plain WRITEs fill and clears each block as soon as
//               it is there. A WRITE that runs again fills a block that was cleared.
//   --op atomic: FETCH_ADDs and CMP_SWAPs count. Each result shows how often earlier ones ran.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "options_json.h"
#include "session.h"

namespace traffic {
namespace {

// A block has the size of the largest MTU, so no packet fills more than one block. Like any program
// that polls memory, this one relies on the last byte of a packet being written last.
constexpr uint32_t kBlock = 4096;
constexpr uint64_t kStamp = 1ull << 63;  // so the last byte of a block is never 0
constexpr uint64_t kLookNs = 1'000'000;
// Traffic of at most this rate leaves the processor to others between two messages.
constexpr uint32_t kSlowRate = 1000;

// Message n consists of blocks_of() blocks; all words of a block hold the same stamp.
uint32_t blocks_of(const Traffic& traffic) {
  return std::max(1u, traffic.size / kBlock);
}
uint64_t stamp_of(const Traffic& traffic, uint64_t number, uint32_t block) {
  return kStamp | (number * blocks_of(traffic) + block);
}

class Once {
 public:
  Once(const Traffic& traffic, const Local& local, VerbsTransport* verbs, TcpChannel* side,
       Report* report)
      : traffic_(traffic),
        local_(local),
        slot_size_(blocks_of(traffic) * kBlock),
        verbs_(verbs),
        side_(side),
        report_(report),
        memory_(verbs->region_add(size_t{slot_size_} * traffic.depth)) {
    side_->send_line(
        fmt::format("memory {} {}", reinterpret_cast<uintptr_t>(memory_.base), memory_.rkey));
  }

  // Returns the exit code.
  int run() { return local_.server.empty() ? serve() : send(); }

 private:
  std::byte* slot(uint64_t number) {
    return memory_.slot(number % traffic_.depth, slot_size_).data();
  }
  void give_way() const {
    if (traffic_.rate == 0 || traffic_.rate > kSlowRate) {
      sched_yield();
    } else {
      usleep(1'000'000 / traffic_.rate / 4);
    }
  }
  uint64_t word(size_t index) const {
    uint64_t value;
    std::memcpy(&value, memory_.base + index * 8, sizeof value);
    return value;
  }

  // ---- client

  SendRequest request_make(uint64_t number) {
    SendRequest request{};
    request.wr_id = number;
    request.is_signaled = true;
    request.local = slot(number);
    request.lkey = memory_.lkey;
    request.rkey = remote_.rkey;
    if (traffic_.op == Op::kAtomic) {
      // Even numbers add to the first word; odd ones raise the second word from k to k + 1.
      const bool adds = number % 2 == 0;
      request.opcode = adds ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
      request.length = 8;
      request.remote = remote_.base + (adds ? 0 : 8);
      request.add = adds ? 1 : number / 2;
      request.swap = number / 2 + 1;
      std::memset(request.local, 0xee, 8);
      return request;
    }
    request.opcode = IBV_WR_RDMA_WRITE;
    request.length = slot_size_;
    request.remote = remote_.base + number % traffic_.depth * slot_size_;
    for (uint32_t i = 0; i < slot_size_; i += 8) {
      const uint64_t stamp = stamp_of(traffic_, number, i / kBlock);
      std::memcpy(request.local + i, &stamp, sizeof stamp);
    }
    return request;
  }

  void completion_take(const ibv_wc& wc) {
    if (wc.status != IBV_WC_SUCCESS) {
      report_->error(fmt::format("wc status {}", ibv_wc_status_str(wc.status)));
      return;
    }
    if (wc.wr_id != completed_ || report_->has_error()) {
      report_->violation("completion-order", fmt::format("{}, not {}", wc.wr_id, completed_));
    }
    if (traffic_.op == Op::kAtomic) {
      uint64_t found;
      std::memcpy(&found, slot(wc.wr_id), sizeof found);
      if (found != wc.wr_id / 2) {
        report_->violation("atomic-value", fmt::format("{} found {}", wc.wr_id, found));
      }
    }
    completed_++;
  }

  bool stop_asked() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return ::poll(&input, 1, 0) == 1;
  }

  int send() {
    uint64_t posted = 0, credit = traffic_.depth, next_look = 0, next_post = 0, changed = now_ns();
    bool is_stopping = false;
    while (!report_->has_error() && !(is_stopping && completed_ == posted)) {
      const uint64_t now = now_ns(), before = completed_;
      while (auto line = side_->receive_line()) {
        unsigned long long base = 0, granted = 0;
        unsigned rkey = 0;
        if (sscanf(line->c_str(), "memory %llu %u", &base, &rkey) == 2) remote_ = {base, rkey};
        if (sscanf(line->c_str(), "credit %llu", &granted) == 1) credit = granted + traffic_.depth;
      }
      if (traffic_.op == Op::kAtomic) credit = completed_ + traffic_.depth;
      if (remote_.base != 0 && !is_stopping && posted < credit && now >= next_post &&
          posted - completed_ < traffic_.depth) {
        const SendRequest request = request_make(posted);
        size_t taken = 0;
        if (verbs_->post_send(0, {&request, 1}, &taken) != 0) report_->error("post");
        posted += taken;
        if (traffic_.rate != 0) next_post = now + 1'000'000'000ull / traffic_.rate;
      }
      ibv_wc wc[16];
      const int got = verbs_->poll(wc);
      for (int i = 0; i < got; i++) completion_take(wc[i]);
      if (got == 0) give_way();
      if (completed_ != before) changed = now;
      if (now >= next_look) {
        printf("progress %llu\n", static_cast<unsigned long long>(completed_));
        fflush(stdout);
        is_stopping = is_stopping || stop_asked();
        next_look = now + 10 * kLookNs;
      }
      if (now - changed > local_.stall_ms * 1'000'000ull) return kExitHang;
    }
    side_->send_line(
        fmt::format("total {} {} {}", posted, completed_, report_->has_error() ? 1 : 0));
    std::string verdict;
    do verdict = side_->wait_line(10000);
    while (verdict.starts_with("credit ") || verdict.starts_with("memory "));
    if (verdict.empty()) return kExitHang;
    if (verdict != "verdict right") report_->violation("server", verdict);
    return report_->exit_code();
  }

  // ---- server

  // Judges and clears the next block if it has come. Returns whether it had.
  bool block_take() {
    std::byte* block = slot(consumed_) + size_t{block_} * kBlock;
    if (__atomic_load_n(reinterpret_cast<uint8_t*>(block) + kBlock - 1, __ATOMIC_ACQUIRE) == 0)
      return false;
    uint64_t words[kBlock / 8];
    std::memcpy(words, block, kBlock);
    for (uint64_t value : words) {
      if (value != words[0] || (value & kStamp) == 0) return false;
    }
    const uint64_t wanted = stamp_of(traffic_, consumed_, block_);
    if (words[0] < wanted) return false;  // cleared_check() finds it
    if (words[0] != wanted) {
      report_->violation("skipped",
                         fmt::format("message {} block {}: stamp {}", consumed_, block_, words[0]));
    }
    std::memset(block, 0, kBlock);
    if (++block_ == blocks_of(traffic_)) {
      block_ = 0;
      consumed_++;
    }
    return true;
  }

  // Blocks fill in order, so an old stamp in a cleared block comes from a WRITE that ran twice.
  // Later messages of the slot would hide it.
  void cleared_check() {
    for (uint32_t back = 1; back <= traffic_.depth && back <= consumed_; back++) {
      // The next message of this slot may have filled it again. Only an older stamp is wrong.
      const uint64_t number = consumed_ - back;
      const std::byte* old = slot(number);
      for (uint32_t i = 0; i < slot_size_; i += 8) {
        uint64_t value;
        std::memcpy(&value, old + i, sizeof value);
        // Without the mark, the word is about to be filled: its last byte is written last.
        if ((value & kStamp) != 0 && value <= stamp_of(traffic_, number, i / kBlock)) {
          report_->violation("written-twice", fmt::format("message {} of {} byte {}: stamp {}",
                                                          number, consumed_, i, value));
        }
      }
    }
  }

  void end_judge(unsigned long long posted, unsigned long long completed, bool has_failed) {
    if (traffic_.op == Op::kWrite) {
      cleared_check();
      if (!has_failed && consumed_ != posted) {
        report_->violation("lost", fmt::format("{} of {} arrived", consumed_, posted));
      }
      if (consumed_ < completed) {
        report_->violation("success-not-executed", fmt::format("{} of {}", consumed_, completed));
      }
      return;
    }
    // The first word counts the requests with even numbers, the second those with odd ones.
    for (size_t i = 0; i < 2; i++) {
      const uint64_t count = word(i), least = (completed + 1 - i) / 2, most = (posted + 1 - i) / 2;
      if (count < least || count > (has_failed ? most : least)) {
        report_->violation("atomic-count", fmt::format("{} of {}..{}", count, least, most));
      }
    }
  }

  int serve() {
    const uint64_t give_up = now_ns() + local_.timeout_ms * 1'000'000ull;
    uint64_t told = 0, quiet_until = 0, next_look = 0;
    unsigned long long posted = 0, completed = 0;
    int has_failed = 0;
    for (;;) {
      const uint64_t now = now_ns();
      if (traffic_.op == Op::kWrite) {
        while (block_take()) {
        }
        if (consumed_ != told) side_->send_line(fmt::format("credit {}", told = consumed_));
      }
      if (now >= next_look) {
        if (traffic_.op == Op::kWrite && report_->is_clean()) cleared_check();
        ibv_wc wc[16];
        (void)verbs_->poll(wc);
        while (auto line = side_->receive_line()) {
          if (sscanf(line->c_str(), "total %llu %llu %d", &posted, &completed, &has_failed) == 3) {
            quiet_until = now + traffic_.quiet_ms * 1'000'000ull;
          }
        }
        next_look = now + kLookNs;
      }
      if (quiet_until != 0 && now >= quiet_until) break;
      if (now >= give_up || side_->is_closed()) return kExitHang;
      give_way();
    }
    end_judge(posted, completed, has_failed != 0);
    side_->send_line(report_->violation_count() == 0 ? "verdict right" : "verdict wrong");
    return report_->exit_code();
  }

  const Traffic traffic_;
  const Local local_;
  const uint32_t slot_size_;
  VerbsTransport* const verbs_;
  TcpChannel* const side_;
  Report* const report_;
  Region memory_;
  RemoteRegion remote_;
  uint64_t completed_ = 0;  // by the client
  uint64_t consumed_ = 0;   // messages, by the server
  uint32_t block_ = 0;      // blocks of the next message, by the server
};

int run(Traffic traffic, const Local& local) {
  Report report;
  auto side = session_agree("shift-once", local, &traffic, traffic_problem);
  if (!side) return kExitUsage;
  if (traffic.op != Op::kWrite && traffic.op != Op::kAtomic) return kExitUsage;
  auto verbs = std::make_unique<VerbsTransport>(traffic, local, !local.server.empty(), &report);
  if (!verbs->open() ||
      !connect_all(traffic.qps, never_loopback, verbs.get(), side.get(), &report)) {
    return kExitVerbsError;
  }
  Once once(traffic, local, verbs.get(), side.get(), &report);
  const int code = once.run();
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

// The test traffic of the failover checks: a plain verbs program, which shares no code with the
// layer beneath it. Each message is a WRITE and a WRITE with immediate after it; the receiver
// compares every byte and gives a credit back by a SEND.
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "internal.h"
#include "rig.h"
#include "runner.h"
#include "trouble.h"
#include "wire.h"

namespace shift::verify {
namespace {

constexpr uint32_t kWindow = 8, kSlot = 8192;
constexpr uint32_t kReceives = 2 * kWindow;
constexpr uint32_t kBefore = 300, kAfter = 300;  // messages before the fault, and after it
// Much longer than any of this takes, even on a host that is very busy.
constexpr double kArmedMs = 10'000, kStillMs = 15'000, kMoveMs = 40'000, kHomeMs = 40'000;

uint8_t pattern(uint32_t message, uint32_t offset) {
  uint32_t mixed = message * 2654435761u ^ offset * 40503u;
  mixed ^= mixed >> 15;
  return static_cast<uint8_t>(mixed);
}

// Event records that the layer has written for this process.
struct Events {
  explicit Events(const std::string& file) : path(file) {}

  void read() {
    if (ms_since(last) < 20) return;
    last = Clock::now();
    std::ifstream file(path);
    armed = 0;
    switched.clear();
    for (std::string line; std::getline(file, line);) {
      const auto record = nlohmann::json::parse(line, nullptr, false);
      const std::string event = record.is_object() ? record.value("event", std::string()) : "";
      armed += event == "armed";
      if (event == "switched") switched.push_back(record);
    }
  }

  std::string path;
  Clock::time_point last{};
  int armed = 0;
  std::vector<nlohmann::json> switched;
};

bool wait_armed(Events& events) {
  const auto start = Clock::now();
  while (events.armed == 0 && ms_since(start) < kArmedMs) {
    events.read();
    usleep(10'000);
  }
  return events.armed > 0;
}

// Puts the NIC's QP into ERR by the kernel's own command, which the layer does not see. A virtual
// QP has the handle of the one on the default NIC, and its context the descriptor.
void break_qp(const ibv_qp& qp) {
  struct {
    ib_uverbs_cmd_hdr header;
    ib_uverbs_modify_qp body;
  } command;
  static_assert(sizeof command == sizeof(ib_uverbs_cmd_hdr) + sizeof(ib_uverbs_modify_qp));
  std::memset(&command, 0, sizeof command);
  command.header.command = IB_USER_VERBS_CMD_MODIFY_QP;
  command.header.in_words = sizeof command / 4;
  command.body.qp_handle = qp.handle;
  command.body.attr_mask = IBV_QP_STATE;
  command.body.qp_state = IBV_QPS_ERR;
  if (write(qp.context->cmd_fd, &command, sizeof command) != sizeof command)
    fail("the kernel's command that breaks a QP", errno);
}

void require_success(const ibv_wc& one) {
  if (one.status != IBV_WC_SUCCESS)
    throw Trouble(std::string("the program sees an error: ") + ibv_wc_status_str(one.status));
}

class Sender {
 public:
  Sender(const Traffic& traffic, Wire& wire)
      : traffic_(traffic),
        wire_(wire),
        device_(traffic.nic),
        memory_(device_, kWindow * kSlot),
        end_(device_),
        events_(traffic.events) {}

  Outcome run() {
    meet();
    go_until([this] { return credited_ >= kBefore; }, kMoveMs, "traffic is too slow");
    break_path();
    gap_ms_ = 0;
    const uint32_t at = credited_;
    go_until([&] { return !events_.switched.empty() && credited_ >= at + kAfter; }, kMoveMs,
             "no other path carries the traffic after the fault");
    const nlohmann::json move = events_.switched.front();
    const double gap_ms = gap_ms_;
    heal_path();
    go_until([&] { return events_.switched.size() > 1; }, kHomeMs, "traffic does not come home");
    const uint32_t home = credited_;
    go_until([&] { return credited_ >= home + kAfter; }, kMoveMs, "traffic is too slow at home");
    wire_.say({{"stop", true}});
    const auto report = wire_.hear();
    if (report.contains("wrong")) return failure(report.value("wrong", std::string()));
    Outcome out = ok(text(
        "%u messages, each byte right; to %s in %.1f ms (%s), standing still for "
        "%.0f ms, and home again",
        credited_, move.value("member", std::string("?")).c_str(), move.value("us", 0.0) / 1000,
        move.value("detector", std::string("?")).c_str(), gap_ms));
    out.figures = {{"messages", static_cast<double>(credited_)},
                   {"switch_ms", move.value("us", 0.0) / 1000},
                   {"pause_ms", gap_ms}};
    return out;
  }

 private:
  void meet() {
    wire_.say({{"address", end_.address().to_json()}});
    const auto peer = wire_.hear(std::chrono::seconds(15));
    end_.connect(Address::from_json(peer.at("address")));
    to_ = peer.value("memory", uint64_t{0});
    rkey_ = peer.value("rkey", 0u);
    for (uint32_t i = 0; i < kReceives; i++) end_.receive(i);
    wire_.say({{"ready", true}});
    const bool is_armed = wait_armed(events_);
    const auto there = wire_.hear(std::chrono::seconds(30));
    if (!is_armed || !there.value("armed", false))
      throw Trouble("no second path is ready within 10 s, so a fault would not be masked");
  }

  // Sends until the condition holds.
  template <typename Condition>
  void go_until(Condition is_over, double most_ms, const char* otherwise) {
    const auto start = last_credit_ = Clock::now();
    while (!is_over()) {
      while (sent_ < credited_ + kWindow) send(sent_++);
      take();
      events_.read();
      if (ms_since(last_credit_) > kStillMs) throw Trouble("traffic stands still");
      if (ms_since(start) > most_ms) throw Trouble(otherwise);
    }
  }

  void send(uint32_t message) {
    const uint64_t at = message % kWindow * kSlot;
    for (uint32_t i = 0; i < kSlot; i++) memory_.at(at)[i] = pattern(message, i);
    Request write{.id = message,
                  .from = memory_.address(at),
                  .lkey = memory_.lkey(),
                  .size = kSlot / 2,
                  .to = to_ + at,
                  .rkey = rkey_};
    end_.post(write);
    write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write.is_signaled = true;
    write.from += kSlot / 2;
    write.to += kSlot / 2;
    write.imm = message;
    end_.post(write);
  }

  void take() {
    ibv_wc some[16];
    const int done = ibv_poll_cq(end_.send_cq, 16, some);
    for (int i = 0; i < done; i++) {
      require_success(some[i]);
      if (some[i].wr_id != completed_++) throw Trouble("completions come in another order");
    }
    const int count = ibv_poll_cq(end_.recv_cq, 16, some);
    for (int i = 0; i < count; i++) {
      require_success(some[i]);
      if (ntohl(some[i].imm_data) != credited_)
        throw Trouble(text("credit %u came where %u had to", ntohl(some[i].imm_data), credited_));
      credited_++;
      end_.receive(credited_);
      gap_ms_ = std::max(gap_ms_, ms_since(last_credit_));
      last_credit_ = Clock::now();
    }
    if (done + count == 0) sched_yield();
  }

  void command(const std::string& words) {
    if (std::system((words + " >&2").c_str()) != 0) throw Trouble("'" + words + "' fails");
  }
  void break_path() {
    if (traffic_.fault == Fault::kError) break_qp(*end_.qp);
    if (traffic_.fault == Fault::kLink) command(traffic_.down);
    is_down_ = traffic_.fault == Fault::kLink;
  }
  void heal_path() {
    if (is_down_) command(traffic_.up);
    is_down_ = false;
  }

 public:
  // Whatever happens, the link comes up again.
  ~Sender() {
    if (is_down_ && std::system((traffic_.up + " >&2").c_str()) != 0)
      std::fprintf(stderr, "'%s' fails\n", traffic_.up.c_str());
  }

 private:
  const Traffic& traffic_;
  Wire& wire_;
  Device device_;
  Memory memory_;
  End end_;
  Events events_;
  uint64_t to_ = 0;
  uint32_t rkey_ = 0, sent_ = 0, credited_ = 0;
  uint64_t completed_ = 0;
  bool is_down_ = false;
  double gap_ms_ = 0;
  Clock::time_point last_credit_ = Clock::now();
};

// The receiver. Returns what was wrong first, or nothing.
class Receiver {
 public:
  Receiver(const Traffic& traffic, Wire& wire)
      : wire_(wire),
        device_(traffic.nic),
        memory_(device_, kWindow * kSlot),
        end_(device_),
        events_(traffic.events) {}

  void run() {
    const Address own = end_.address();
    const auto peer = wire_.hear(std::chrono::seconds(15));
    end_.connect(Address::from_json(peer.at("address")));
    for (uint32_t i = 0; i < kReceives; i++) end_.receive(i);
    wire_.say(
        {{"address", own.to_json()}, {"memory", memory_.address()}, {"rkey", memory_.rkey()}});
    wire_.hear(std::chrono::seconds(15));
    wire_.say({{"armed", wait_armed(events_)}});
    for (;;) {
      pollfd one{wire_.fd(), POLLIN, 0};
      if (++turns_ % 64 == 0 && ::poll(&one, 1, 0) == 1) break;
      take();
    }
    wire_.hear();
    if (wrong_.empty()) return wire_.say({{"messages", expected_}});
    wire_.say({{"wrong", wrong_}});
  }

 private:
  void take() {
    ibv_wc some[16];
    const int done = ibv_poll_cq(end_.send_cq, 16, some);
    for (int i = 0; i < done; i++) require_success(some[i]);
    const int count = ibv_poll_cq(end_.recv_cq, 16, some);
    for (int i = 0; i < count; i++) {
      require_success(some[i]);
      judge(ntohl(some[i].imm_data));
      end_.receive(expected_);
      end_.post(
          {.id = expected_, .opcode = IBV_WR_SEND_WITH_IMM, .is_signaled = true, .imm = expected_});
      expected_++;
    }
    if (done + count == 0) sched_yield();
  }

  void judge(uint32_t message) {
    if (!wrong_.empty()) return;
    if (message != expected_)
      wrong_ = text("notification %u came where %u had to", message, expected_);
    const uint8_t* slot = memory_.at(expected_ % kWindow * kSlot);
    for (uint32_t i = 0; i < kSlot && wrong_.empty(); i++) {
      if (slot[i] != pattern(expected_, i))
        wrong_ = text("byte %u of message %u is wrong", i, expected_);
    }
  }

  Wire& wire_;
  Device device_;
  Memory memory_;
  End end_;
  Events events_;
  uint32_t expected_ = 0;
  uint64_t turns_ = 0;
  std::string wrong_;
};

}  // namespace

int internal_traffic(const Traffic& traffic) {
  Wire wire(traffic.fd);
  if (traffic.fault == Fault::kNone) {
    try {
      Receiver(traffic, wire).run();
    } catch (const Trouble& trouble) {
      wire.say({{"trouble", trouble.what()}});
      return 1;
    }
    return 0;
  }
  std::printf("%s\n", outcome_to_json(Sender(traffic, wire).run()).dump().c_str());
  std::fflush(stdout);
  return 0;
}

}  // namespace shift::verify

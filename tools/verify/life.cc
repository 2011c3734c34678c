// Checks of a QP's life: it is connected again and again, with new PSNs, and commands are answered
// soon.
#include <cerrno>
#include <cstring>

#include "rig.h"
#include "topics.h"
#include "trouble.h"
#include "util/config.h"

namespace shift::verify {
namespace {

constexpr int kLives = 5;

struct Timed {
  std::string name;
  double most_ms = 0;
};

// Runs a command and remembers how long it took.
class Stopwatch {
 public:
  template <typename Command>
  auto time(const char* name, Command&& command) {
    const auto start = Clock::now();
    struct Note {
      Stopwatch* watch;
      const char* name;
      Clock::time_point start;
      ~Note() { watch->note(name, ms_since(start)); }
    } const note{this, name, start};
    return command();
  }
  // "RESET 0.1, INIT 0.2 ms"
  std::string said() const {
    std::string out;
    for (const Timed& one : timed_)
      out += (out.empty() ? "" : ", ") + text("%s %.2f", one.name.c_str(), one.most_ms);
    return out + " ms";
  }
  // What the figures mean for the layer; `who` waits for these commands.
  Outcome judge(const char* who) const {
    const Timed* worst = &timed_.front();
    for (const Timed& one : timed_) {
      if (one.most_ms > worst->most_ms) worst = &one;
    }
    const int bound = config().command_ms;
    Outcome out = ok(said());
    if (worst->most_ms > bound) {
      out = failure(text("%s took %.0f ms, more than SHIFT_COMMAND_MS (%d): %s",
                         worst->name.c_str(), worst->most_ms, bound, said().c_str()));
    } else if (worst->most_ms > bound / 20.0) {
      out = warning(text("%s took %.0f ms, and %s waits for that: %s", worst->name.c_str(),
                         worst->most_ms, who, said().c_str()));
    }
    for (const Timed& one : timed_) out.figures.emplace_back(one.name + "_ms", one.most_ms);
    return out;
  }

 private:
  void note(const char* name, double ms) {
    for (Timed& one : timed_) {
      if (one.name != name) continue;
      one.most_ms = std::max(one.most_ms, ms);
      return;
    }
    timed_.push_back({name, ms});
  }

  std::vector<Timed> timed_;
};

// Writes one byte from `end` into its peer's memory, and reports the completion.
struct Byte {
  Memory& memory;
  uint8_t value = 0;

  void write(End& end, uint8_t number) {
    value = number;
    *memory.at() = number;
    end.post({.id = number,
              .is_signaled = true,
              .from = memory.address(),
              .lkey = memory.lkey(),
              .size = 1,
              .to = memory.address(2048),
              .rkey = memory.rkey()});
  }
  bool is_there() const { return *static_cast<volatile uint8_t*>(memory.at(2048)) == value; }
};

}  // namespace

Outcome check_reconnect(const Subject& subject) {
  Device device(subject.nic);
  Memory memory(device, 4096);
  End end(device), peer(device);
  Byte byte{memory};
  Stopwatch watch;
  for (int round = 0; round < kLives; round++) {
    const Address to_end = end.address(), to_peer = peer.address();
    watch.time("INIT", [&] { end.init(); });
    watch.time("RTR", [&] { end.to_rtr(to_peer); });
    watch.time("RTS", [&] { end.to_rts({}); });
    peer.connect(to_end);
    byte.write(end, static_cast<uint8_t>(round + 1));
    end.complete(end.send_cq);
    if (!byte.is_there()) return failure("a WRITE completed, and its data is not there");
    watch.time("ERR", [&] { end.to(IBV_QPS_ERR); });
    watch.time("query", [&] { end.query(IBV_QP_STATE); });
    watch.time("RESET", [&] { end.to(IBV_QPS_RESET); });
    peer.to(IBV_QPS_RESET);
    if (end.query(IBV_QP_STATE).qp_state != IBV_QPS_RESET)
      return failure("a QP that was reset says that it is in another state");
  }
  Outcome out = watch.judge("each switch");
  out.text = text("connected %d times; at most ", kLives) + out.text;
  return out;
}

Outcome check_new_psn(const Subject& subject) {
  Device device(subject.nic);
  Memory memory(device, 4096);
  End end(device), peer(device);
  Byte byte{memory};
  connect(end, peer);
  byte.write(end, 1);
  end.complete(end.send_cq);

  // Both ends begin anew.
  end.to(IBV_QPS_RESET);
  peer.to(IBV_QPS_RESET);
  connect(end, peer);
  if (peer.query(IBV_QP_RQ_PSN).rq_psn != end.psn)
    return failure("a QP that was connected again does not expect the new start PSN");
  byte.write(end, 2);
  const auto one_is_there = [](const auto& all) { return !all.empty(); };
  const auto again = End::poll(end.send_cq, std::chrono::seconds(1), one_is_there);
  if (again.empty() || again.front().status != IBV_WC_SUCCESS || !byte.is_there())
    return failure("after both ends were connected again with new PSNs, nothing comes through");

  // Only one of them does: its packets belong to another connection.
  const Address to_peer = peer.address();
  (void)end.address();  // takes a new PSN
  end.to(IBV_QPS_RESET);
  end.connect(to_peer, {.timeout = 12, .retries = 1});
  byte.write(end, 3);
  const auto stale = End::poll(end.send_cq, std::chrono::seconds(3), one_is_there);
  if (byte.is_there()) return failure("a packet of another connection was executed");
  if (stale.empty()) return failure("a request of another connection never completes");
  if (stale.front().status == IBV_WC_SUCCESS)
    return failure("a request of another connection completes with success");
  return ok("a new PSN is taken, and packets with the PSNs of another connection are not executed");
}

Outcome check_commands(const Subject& subject) {
  Stopwatch watch;
  const auto opened = watch.time("open", [&] { return Device(subject.nic); });
  Device device = opened;
  watch.time("query_port", [&] {
    succeed(ibv_query_port(device.context, kPort, &device.port), "ibv_query_port");
  });
  for (int round = 0; round < kLives; round++) {
    ibv_cq* const cq = watch.time(
        "create_cq", [&] { return ibv_create_cq(device.context, 1024, nullptr, nullptr, 0); });
    require(cq != nullptr, "ibv_create_cq", errno);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {.max_send_wr = 512,
                .max_recv_wr = 256,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* const qp = watch.time("create_qp", [&] { return ibv_create_qp(device.pd, &init); });
    require(qp != nullptr, "ibv_create_qp", errno);
    const int qp_error = watch.time("destroy_qp", [&] { return ibv_destroy_qp(qp); });
    require(qp_error == 0, "ibv_destroy_qp", qp_error);
    const int cq_error = watch.time("destroy_cq", [&] { return ibv_destroy_cq(cq); });
    require(cq_error == 0, "ibv_destroy_cq", cq_error);
  }
  return watch.judge("whoever makes a queue pair or a second path");
}

Outcome check_cq_resize(const Subject& subject) {
  Device device(subject.nic);
  End end(device, {.depth = 32}), peer(device);
  connect(end, peer);
  constexpr uint64_t kWaiting = 8;
  for (uint64_t id = 1; id <= kWaiting; id++) end.post({.id = id, .is_signaled = true});
  // When the last one is over, the others wait in the queue.
  peer.receive(1);
  end.post({.id = kWaiting + 1, .opcode = IBV_WR_SEND, .is_signaled = true});
  peer.complete(peer.recv_cq);
  const int wanted = end.send_cq->cqe * 4;
  const int error = ibv_resize_cq(end.send_cq, wanted);
  if (error != 0) {
    return warning(text("a completion queue cannot be made larger (%s)",
                        std::strerror(error > 0 ? error : errno)));
  }
  if (end.send_cq->cqe < wanted) return failure("a completion queue that was resized is too small");
  const auto got = End::poll(end.send_cq, std::chrono::seconds(1),
                             [](const auto& all) { return all.size() > kWaiting; });
  for (size_t i = 0; i < got.size(); i++) {
    if (got[i].wr_id != i + 1 || got[i].status != IBV_WC_SUCCESS)
      return failure("completions changed when their queue was made larger");
  }
  if (got.size() != kWaiting + 1)
    return failure(text("%zu of %u completions were lost when their queue was made larger",
                        kWaiting + 1 - got.size(), static_cast<unsigned>(kWaiting + 1)));
  return ok(text("a queue of %d entries was made one of %d, with completions in it", wanted / 4,
                 end.send_cq->cqe));
}

// With what the layer asks for.
Outcome check_patience(const Subject& subject) {
  Device device(subject.nic);
  End end(device), peer(device);
  const auto timeout = static_cast<uint8_t>(config().rc_timeout_max);
  constexpr uint8_t kRetries = 6;
  end.connect(peer.address(), {.timeout = timeout, .retries = kRetries});  // peer does not answer
  const double tries_ms = 4.096e-3 * static_cast<double>(uint64_t{1} << timeout) * (kRetries + 1);
  const double most_ms = 4 * tries_ms;  // by the standard (IBTA 9.7.6.1.3)
  const auto start = Clock::now();
  end.post({.id = 1, .is_signaled = true});
  const auto got = End::poll(end.send_cq, milliseconds(static_cast<int64_t>(3 * most_ms) + 1000),
                             [](const auto& all) { return !all.empty(); });
  const double took = ms_since(start);
  const std::string asked = text("timeout %d and %d retries", timeout, kRetries);
  if (got.empty())
    return failure(text("no error within %.0f ms of silence, with %s", took, asked.c_str()));
  if (got.front().status == IBV_WC_SUCCESS)
    return failure("a request that nobody answered completes with success");
  Outcome out = ok(text("silence gives an error after %.0f ms, with %s", took, asked.c_str()));
  if (took > 1.5 * most_ms) {
    out =
        warning(text("silence gives an error after %.0f ms only, and the standard allows %.0f "
                     "with %s",
                     took, most_ms, asked.c_str()));
  }
  out.figures = {{"silence_ms", took}, {"standard_most_ms", most_ms}};
  return out;
}

}  // namespace shift::verify

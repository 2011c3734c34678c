#include "rings.h"

#include <dlfcn.h>
#include <time.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "engine_pause.h"
#include "measured.h"

namespace bench {
namespace {

constexpr int kWarmUpRounds = 3;
constexpr int kBatchMax = 16;
constexpr double kDrainMaxS = 10;

enum class What { kPostSend, kPostRecv, kPollFull, kPollEmpty, kStartPoll, kBuilder };

struct Operation {
  const char* name;
  Interface interface;
  What what;
  int batch = 1;
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  bool is_inline = false;
};

// clang-format off
constexpr Operation kOperations[] = {
    {"post_send WRITE, batch 1", Interface::kClassic, What::kPostSend, 1},
    {"post_send WRITE, batch 16", Interface::kClassic, What::kPostSend, 16},
    {"post_send SEND, batch 1", Interface::kClassic, What::kPostSend, 1, IBV_WR_SEND},
    {"post_send SEND, batch 16", Interface::kClassic, What::kPostSend, 16, IBV_WR_SEND},
    {"post_send inline WRITE, batch 1", Interface::kClassic, What::kPostSend, 1, IBV_WR_RDMA_WRITE, true},
    {"post_send inline WRITE, batch 16", Interface::kClassic, What::kPostSend, 16, IBV_WR_RDMA_WRITE, true},
    {"ibv_wr_* WRITE, batch 1", Interface::kBuilder, What::kBuilder, 1},
    {"ibv_wr_* WRITE, batch 16", Interface::kBuilder, What::kBuilder, 16},
    {"ibv_wr_* SEND, batch 16", Interface::kBuilder, What::kBuilder, 16, IBV_WR_SEND},
    {"ibv_wr_* inline WRITE, batch 16", Interface::kBuilder, What::kBuilder, 16, IBV_WR_RDMA_WRITE, true},
    {"post_recv, batch 1", Interface::kClassic, What::kPostRecv, 1},
    {"post_recv, batch 16", Interface::kClassic, What::kPostRecv, 16},
    {"poll_cq, one WC a call", Interface::kClassic, What::kPollFull, 1},
    {"poll_cq, 16 WCs a call", Interface::kClassic, What::kPollFull, 16},
    {"poll_cq, empty", Interface::kClassic, What::kPollEmpty, 1},
    {"start_poll, one WC a batch", Interface::kExtended, What::kStartPoll, 1},
    {"start_poll, 16 WCs a batch", Interface::kExtended, What::kStartPoll, 16},
};
// clang-format on

const char* unit_of(What what) {
  switch (what) {
    case What::kPollEmpty:
      return "call";
    case What::kPollFull:
    case What::kStartPoll:
      return "WC";
    default:
      return "WR";
  }
}

double now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// On the stock library the post function is in a vendor's plug-in; on the front it is in a library
// that has the name libibverbs.
bool is_virtual(const ibv_qp* qp) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(qp->context->ops.post_send), &info) == 0) return false;
  const char* slash = strrchr(info.dli_fname, '/');
  return strncmp(slash != nullptr ? slash + 1 : info.dli_fname, "libibverbs.so", 13) == 0;
}

class Runner {
 public:
  Runner(Pair& pair, const Operation& operation, const RingOptions& options)
      : pair_(pair),
        operation_(operation),
        count_(options.wrs_per_round),
        rounds_(options.rounds) {}

  RingResult run(uint64_t* calls);

 private:
  void prepare();
  int measured();
  bool is_expected(int outcome) const;
  void settle(int outcome);

  void post_receives(End& end);
  void send_all(End& end);
  void collect(ibv_cq* cq, int wanted);
  std::vector<ibv_send_wr>& chain_sends(ibv_wr_opcode opcode, bool is_inline, int batch);
  std::vector<ibv_recv_wr>& chain_receives(int batch);
  BuilderArgs builder_args();

  Pair& pair_;
  const Operation& operation_;
  const int count_;
  const int rounds_;
  ibv_sge sge_{};
  std::vector<ibv_send_wr> sends_;
  std::vector<ibv_recv_wr> receives_;
  ibv_wc wcs_[kBatchMax];
};

std::vector<ibv_send_wr>& Runner::chain_sends(ibv_wr_opcode opcode, bool is_inline, int batch) {
  Device& device = pair_.device();
  sge_ = {reinterpret_cast<uint64_t>(device.memory.data()), is_inline ? kInlineMessage : kMessage,
          device.mr->lkey};
  sends_.assign(count_, {});
  for (int i = 0; i < count_; i++) {
    ibv_send_wr& wr = sends_[i];
    wr.wr_id = i;
    wr.next = (i + 1) % batch != 0 ? &sends_[i + 1] : nullptr;
    wr.sg_list = &sge_;
    wr.num_sge = 1;
    wr.opcode = opcode;
    // The last WR shows when all are done.
    wr.send_flags = (i + 1 == count_ ? IBV_SEND_SIGNALED : 0) | (is_inline ? IBV_SEND_INLINE : 0);
    wr.wr.rdma.remote_addr = sge_.addr + 4096;
    wr.wr.rdma.rkey = device.mr->rkey;
  }
  return sends_;
}

std::vector<ibv_recv_wr>& Runner::chain_receives(int batch) {
  Device& device = pair_.device();
  sge_ = {reinterpret_cast<uint64_t>(device.memory.data()) + 4096, kMessage, device.mr->lkey};
  receives_.assign(count_, {});
  for (int i = 0; i < count_; i++) {
    receives_[i].wr_id = i;
    receives_[i].next = (i + 1) % batch != 0 ? &receives_[i + 1] : nullptr;
    receives_[i].sg_list = &sge_;
    receives_[i].num_sge = 1;
  }
  return receives_;
}

BuilderArgs Runner::builder_args() {
  Device& device = pair_.device();
  const auto base = reinterpret_cast<uint64_t>(device.memory.data());
  return {pair_.near().qp_ex, device.mr->lkey,
          device.mr->rkey,    base,
          base + 4096,        operation_.is_inline ? kInlineMessage : kMessage};
}

void Runner::post_receives(End& end) {
  ibv_recv_wr* bad;
  if (const int error = ibv_post_recv(end.qp, chain_receives(count_).data(), &bad))
    fail("ibv_post_recv", error);
}

void Runner::send_all(End& end) {
  ibv_send_wr* bad;
  if (const int error = ibv_post_send(end.qp, chain_sends(IBV_WR_SEND, false, count_).data(), &bad))
    fail("ibv_post_send", error);
  collect(end.send_cq, 1);
}

// Polling also gives the engine its time.
void Runner::collect(ibv_cq* cq, int wanted) {
  const double give_up = now_ns() + kDrainMaxS * 1e9;
  while (wanted > 0) {
    ibv_wc wc[kBatchMax];
    const int got = ibv_poll_cq(cq, kBatchMax, wc);
    if (got < 0) fail("ibv_poll_cq", EIO);
    for (int i = 0; i < got; i++) {
      if (wc[i].status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(wc[i].status), EIO);
    }
    wanted -= got;
    if (got == 0 && now_ns() > give_up) fail("waiting for completions", ETIMEDOUT);
  }
}

// Does everything that is not measured but must have happened. The chains for the measured call are
// made last, since the preparations use the same room.
void Runner::prepare() {
  switch (operation_.what) {
    case What::kPostSend:
    case What::kBuilder:
      if (operation_.opcode == IBV_WR_SEND) post_receives(pair_.far());
      chain_sends(operation_.opcode, operation_.is_inline, operation_.batch);
      break;
    case What::kPostRecv:
      chain_receives(operation_.batch);
      break;
    case What::kPollFull:
    case What::kStartPoll:
      // A SEND is acknowledged after its receive has completed, so all WCs are there afterwards.
      post_receives(pair_.near());
      send_all(pair_.far());
      break;
    case What::kPollEmpty:
      break;
  }
}

int Runner::measured() {
  const int batch = operation_.batch;
  End& near = pair_.near();
  switch (operation_.what) {
    case What::kPostSend:
      return measured_post_send(near.qp, sends_.data(), count_, batch);
    case What::kPostRecv:
      return measured_post_recv(near.qp, receives_.data(), count_, batch);
    case What::kPollFull:
    case What::kPollEmpty:
      return measured_poll_cq(near.recv_cq, wcs_, count_, batch);
    case What::kStartPoll:
      return measured_start_poll(near.recv_cq_ex, wcs_, count_, batch);
    case What::kBuilder:
      break;
  }
  const BuilderArgs args = builder_args();
  if (operation_.is_inline) return measured_wr_write_inline(&args, count_, batch);
  if (operation_.opcode == IBV_WR_SEND) return measured_wr_send(&args, count_, batch);
  return measured_wr_write(&args, count_, batch);
}

bool Runner::is_expected(int outcome) const {
  const bool is_full = operation_.what == What::kPollFull || operation_.what == What::kStartPoll;
  return outcome == (is_full ? count_ : 0);
}

// Empties the queues again.
void Runner::settle(int outcome) {
  switch (operation_.what) {
    case What::kPostSend:
    case What::kBuilder:
      if (outcome != 0) fail("a measured post", outcome);
      collect(pair_.near().send_cq, 1);
      if (operation_.opcode == IBV_WR_SEND) collect(pair_.far().recv_cq, count_);
      break;
    case What::kPostRecv:
      if (outcome != 0) fail("a measured post", outcome);
      send_all(pair_.far());
      collect(pair_.near().recv_cq, count_);
      break;
    case What::kPollFull:
    case What::kStartPoll:
      if (outcome < 0) fail("a measured poll", EIO);
      collect(pair_.near().recv_cq, count_ - outcome);
      break;
    case What::kPollEmpty:
      if (outcome != 0) fail("a WC in an empty CQ", EIO);
      break;
  }
}

RingResult Runner::run(uint64_t* calls) {
  RingResult result;
  result.name = operation_.name;
  result.unit = unit_of(operation_.what);
  result.is_virtual = is_virtual(pair_.near().qp);
  result.units_per_call = count_;
  for (int round = 0; round < kWarmUpRounds + rounds_; round++) {
    prepare();
    double before, after;
    int outcome;
    {
      const EnginePause pause;
      before = now_ns();
      outcome = measured();
      after = now_ns();
    }
    ++*calls;
    settle(outcome);
    if (round < kWarmUpRounds || !is_expected(outcome)) continue;
    result.ns.push_back((after - before) / count_);
    result.calls.push_back(*calls);
  }
  return result;
}

}  // namespace

std::vector<RingResult> rings_measure(Device& device, const RingOptions& options) {
  Pair classic(device, Interface::kClassic);
  Pair builder(device, Interface::kBuilder);
  Pair extended(device, Interface::kExtended);
  std::this_thread::sleep_for(std::chrono::milliseconds(options.settle_ms));
  std::vector<RingResult> results;
  uint64_t calls = 0;
  for (const Operation& operation : kOperations) {
    Pair& pair = operation.interface == Interface::kClassic   ? classic
                 : operation.interface == Interface::kBuilder ? builder
                                                              : extended;
    results.push_back(Runner(pair, operation, options).run(&calls));
  }
  return results;
}

}  // namespace bench

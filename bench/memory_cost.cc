// memory-cost tells how much memory queue pairs take in the process that has them. It is a plain
// verbs program, like verbs-cost: `memory_cost.py` runs it on the stock library and under SHIFT.
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "verbs_cost/pair.h"

namespace {

using bench::Device;
using bench::fail;

struct Options {
  std::string device;
  int gid_index = 3;
  int pairs = 32;
  uint32_t depth = 128;
  int settle_ms = 1500;
};

// What only this process has in memory, in bytes.
size_t private_bytes() {
  malloc_trim(0);
  std::ifstream rollup("/proc/self/smaps_rollup");
  size_t total = 0;
  for (std::string word; rollup >> word;) {
    if (word != "Private_Clean:" && word != "Private_Dirty:") continue;
    size_t kib = 0;
    rollup >> kib;
    total += kib * 1024;
  }
  if (total == 0) fail("/proc/self/smaps_rollup", ENOENT);
  return total;
}

struct End {
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

End make(Device& device, uint32_t depth) {
  End end;
  end.cq = ibv_create_cq(device.context, static_cast<int>(2 * depth), nullptr, nullptr, 0);
  if (end.cq == nullptr) fail("ibv_create_cq", errno);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = end.cq;
  init.cap = {.max_send_wr = depth,
              .max_recv_wr = depth,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = bench::kInlineMessage};
  end.qp = ibv_create_qp(device.pd, &init);
  if (end.qp == nullptr) fail("ibv_create_qp", errno);
  if (const int error = bench::to_init(end.qp)) fail("modify_qp INIT", error);
  return end;
}

void poll_all(ibv_cq* cq, uint32_t count) {
  ibv_wc wc[16];
  for (uint32_t seen = 0; seen < count;) {
    const int got = ibv_poll_cq(cq, 16, wc);
    if (got < 0) fail("ibv_poll_cq", EIO);
    for (int i = 0; i < got; i++)
      if (wc[i].status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(wc[i].status), EIO);
    seen += static_cast<uint32_t>(got);
    if (got == 0) usleep(50);
  }
}

// Uses each place of the queues once, so that all memory that they need is there.
void fill_once(Device& device, End& from, End& to, uint32_t depth) {
  ibv_sge sge{reinterpret_cast<uint64_t>(device.memory.data()), bench::kMessage, device.mr->lkey};
  const uint32_t most = depth / 2;  // a queue that has no place left takes no request
  for (int round = 0; round < 4; round++) {
    for (uint32_t i = 0; i < most; i++) {
      ibv_recv_wr wr{}, *bad;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      if (const int error = ibv_post_recv(to.qp, &wr, &bad)) fail("ibv_post_recv", error);
    }
    for (uint32_t i = 0; i < most; i++) {
      ibv_send_wr wr{}, *bad;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      if (const int error = ibv_post_send(from.qp, &wr, &bad)) fail("ibv_post_send", error);
    }
    poll_all(from.cq, most);
    poll_all(to.cq, most);
  }
}

nlohmann::json measure(const Options& options) {
  Device device(options.device, options.gid_index);
  std::vector<End> ends;
  const auto add_pair = [&] {
    for (int i = 0; i < 2; i++) ends.push_back(make(device, options.depth));
    End *a = &ends[ends.size() - 2], *b = &ends.back();
    for (auto [own, peer] : {std::pair(a, b), std::pair(b, a)})
      if (const int error = bench::to_rtr(device, own->qp, peer->qp->qp_num))
        fail("modify_qp RTR", error);
    for (End* end : {a, b})
      if (const int error = bench::to_rts(end->qp)) fail("modify_qp RTS", error);
  };
  const auto use = [&](size_t from) {
    usleep(static_cast<useconds_t>(options.settle_ms) * 1000);  // for the layer's twins
    for (size_t i = from; i < ends.size(); i += 2) {
      fill_once(device, ends[i], ends[i + 1], options.depth);
      fill_once(device, ends[i + 1], ends[i], options.depth);
    }
  };
  // The first pairs bring along what the process needs only once.
  constexpr size_t kFirst = 4;
  for (size_t i = 0; i < kFirst; i++) add_pair();
  use(0);
  const size_t before = private_bytes();
  for (int i = 0; i < options.pairs; i++) add_pair();
  usleep(static_cast<useconds_t>(options.settle_ms) * 1000);
  const size_t idle = private_bytes();
  use(2 * kFirst);
  const size_t used = private_bytes();
  const auto each = [&](size_t bytes) {
    return (static_cast<double>(bytes) - static_cast<double>(before)) / (2.0 * options.pairs);
  };
  for (End& end : ends) ibv_destroy_qp(end.qp);
  for (End& end : ends) ibv_destroy_cq(end.cq);
  return {{"idle", each(idle)}, {"used", each(used)}};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the memory of queue pairs; prints JSON", "memory-cost");
  app.add_option("-d,--device", options.device, "verbs device, default: the first");
  app.add_option("-x,--gid-index", options.gid_index, "GID index")->capture_default_str();
  app.add_option("--pairs", options.pairs, "pairs of QPs")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--depth", options.depth, "places of each queue")
      ->check(CLI::Range(2, 4096))
      ->capture_default_str();
  app.add_option("--settle-ms", options.settle_ms, "wait after connecting")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  printf("%s\n", measure(options).dump().c_str());
  return 0;
}

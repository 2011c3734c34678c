// What a post and a poll cost, on the stock library and with the layer: two children measure the
// same.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "internal.h"
#include "rig.h"
#include "runner.h"
#include "topics.h"
#include "trouble.h"

namespace shift::verify {
namespace {

constexpr int kCostRounds = 60, kPosts = 32, kPolls = 256;
// The layer itself costs a few nanoseconds; more than this is no noise.
double much_ns(double stock_ns) {
  return 1.5 * stock_ns + 100;
}

double ns_each(Clock::time_point start, int count) {
  return ms_since(start) * 1e6 / count;
}

struct Cost {
  double post_ns = 0, poll_ns = 0;
};

Cost cost_with(const Subject& subject, bool is_layered) {
  const ChildFiles files;
  std::vector<std::string> words{own_program(), "internal", "cost", subject.nic};
  std::vector<std::string> env{"SHIFT_DISABLE=1"};
  if (is_layered) {
    words.insert(words.begin(), {shift_run_program(), "--"});
    env = layer_environment(subject, files);
  }
  int status = 0;
  const std::string said = program_run(words, env, -1, files.log, status);
  const auto json = nlohmann::json::parse(said, nullptr, false);
  if (!json.is_object() || !json.contains("post_ns")) {
    const std::string why =
        json.is_object() ? json.value("text", std::string()) : files.last_line();
    throw Trouble(std::string("the program that measures ") +
                  (is_layered ? "with the layer" : "on the stock library") + " fails: " + why);
  }
  return {json.value("post_ns", 0.0), json.value("poll_ns", 0.0)};
}

}  // namespace

int internal_cost(const std::string& nic) {
  Device device(nic);
  Memory memory(device, 4096);
  End end(device), peer(device);
  connect(end, peer);
  Cost least{1e9, 1e9};
  for (int round = 0; round < kCostRounds; round++) {
    ibv_sge piece{memory.address(), 8, memory.lkey()};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = memory.address(2048);
    wr.wr.rdma.rkey = memory.rkey();
    const auto post = Clock::now();
    for (int i = 0; i < kPosts; i++) {
      wr.send_flags = i == kPosts - 1 ? IBV_SEND_SIGNALED : 0;
      if (ibv_post_send(end.qp, &wr, &bad) != 0) throw Trouble("ibv_post_send fails");
    }
    least.post_ns = std::min(least.post_ns, ns_each(post, kPosts));
    end.complete(end.send_cq);
    ibv_wc unused;
    const auto poll = Clock::now();
    for (int i = 0; i < kPolls; i++) (void)ibv_poll_cq(end.send_cq, 1, &unused);
    least.poll_ns = std::min(least.poll_ns, ns_each(poll, kPolls));
  }
  std::printf(
      "%s\n",
      nlohmann::json{{"post_ns", least.post_ns}, {"poll_ns", least.poll_ns}}.dump().c_str());
  std::fflush(stdout);
  return 0;
}

Outcome check_cost(const Subject& subject) {
  const Cost stock = cost_with(subject, false), layer = cost_with(subject, true);
  Outcome out = ok(text("post %.0f ns, with the layer %.0f; poll %.0f ns, with the layer %.0f",
                        stock.post_ns, layer.post_ns, stock.poll_ns, layer.poll_ns));
  if (layer.post_ns > much_ns(stock.post_ns) || layer.poll_ns > much_ns(stock.poll_ns))
    out.verdict = Verdict::kWarning;
  out.figures = {{"stock_post_ns", stock.post_ns},
                 {"layer_post_ns", layer.post_ns},
                 {"stock_poll_ns", stock.poll_ns},
                 {"layer_poll_ns", layer.poll_ns}};
  return out;
}

}  // namespace shift::verify

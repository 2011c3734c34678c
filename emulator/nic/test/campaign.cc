// Seeded campaigns: rounds of several connections each.
#include "campaign.h"

#include <algorithm>
#include <array>
#include <memory>

#include "campaign_flow.h"

namespace cxemu::test {

namespace {

constexpr uint32_t kLinks = 3;
constexpr uint64_t kCampaignPatienceNs = 5'000'000'000;  // without any completion

template <typename T, size_t N>
T pick(const std::array<T, N>& from, Random& random) {
  return from[random() % N];
}

// One connection and its two directions.
struct Link {
  Link(Judge& judge, Random& random, const FlowOptions& options, Rig& rig, TestCq& a_cq,
       TestCq& b_cq, Flow::SharedWord& at_a, Flow::SharedWord& at_b);

  TestQp a, b;
  std::unique_ptr<Flow> there, back;
};

ibv_mtu mtu_code(uint32_t mtu) {
  uint32_t code = IBV_MTU_256;
  while (128u << code < mtu) code++;
  return static_cast<ibv_mtu>(code);
}

Link::Link(Judge& judge, Random& random, const FlowOptions& options, Rig& rig, TestCq& a_cq,
           TestCq& b_cq, Flow::SharedWord& at_a, Flow::SharedWord& at_b)
    : a(*rig.a.nic, rig.a.events, a_cq, a_cq), b(*rig.b.nic, rig.b.events, b_cq, b_cq) {
  const auto reads = static_cast<uint8_t>(1 + random() % 8);
  for (TestQp* qp : {&a, &b}) {
    qp->attr.path_mtu = mtu_code(options.mtu);
    qp->attr.sq_psn = random() % 2 == 0 ? static_cast<uint32_t>(random() % (kPsnMask + 1))
                                        : kPsnMask - static_cast<uint32_t>(random() % 2000);
    qp->attr.max_rd_atomic = qp->attr.max_dest_rd_atomic = reads;
    qp->attr.min_rnr_timer = static_cast<uint8_t>(1 + random() % 6);
    qp->attr.timeout = static_cast<uint8_t>(6 + random() % 3);
    qp->attr.retry_cnt = options.may_fail ? static_cast<uint8_t>(random() % 3) : 7;
    qp->attr.rnr_retry = options.may_fail ? static_cast<uint8_t>(random() % 4) : 7;
  }
  rig.connect(a, b);
  there = std::make_unique<Flow>(judge, random, options, a, b, at_b);
  back = std::make_unique<Flow>(judge, random, options, b, a, at_a);
}

class Round {
 public:
  Round(Judge& judge, Random& random, const FlowOptions& options);
  void run();
  void report(CampaignReport* report) const;

 private:
  static EngineTuning tuning_make(Random& random);
  void wire_spoil(bool may_fail);
  void work();
  void completions_take();
  void stop();
  void counters_judge();
  void shared_judge(const Flow::SharedWord& word) const;
  bool settled() const;

  Judge& judge_;
  Random& random_;
  const bool may_fail_;
  Rig rig_;
  TestCq a_cq_{*rig_.a.nic, rig_.a.events}, b_cq_{*rig_.b.nic, rig_.b.events};
  Flow::SharedWord at_a_{*rig_.a.nic}, at_b_{*rig_.b.nic};
  std::vector<std::unique_ptr<Link>> links_;
  uint64_t progress_ns_;
};

EngineTuning Round::tuning_make(Random& random) {
  EngineTuning tuning = Rig::tuning_default();
  tuning.qp_send_bytes = pick(std::array<uint32_t, 3>{3000, 20'000, 256 << 10}, random);
  tuning.transport.window_packets = pick(std::array<uint32_t, 3>{8, 64, 2048}, random);
  return tuning;
}

Round::Round(Judge& judge, Random& random, const FlowOptions& options)
    : judge_(judge),
      random_(random),
      may_fail_(options.may_fail),
      rig_(random(), tuning_make(random)),
      progress_ns_(rig_.clock.now_ns()) {
  for (uint32_t i = 0; i < kLinks; i++) {
    FlowOptions own = options;
    own.mtu = pick(std::array<uint32_t, 5>{256, 512, 1024, 2048, 4096}, random);
    links_.push_back(std::make_unique<Link>(judge, random, own, rig_, a_cq_, b_cq_, at_a_, at_b_));
  }
  wire_spoil(options.may_fail);
}

void Round::wire_spoil(bool may_fail) {
  // Low enough that eight tries in a row never fail, in rounds in which nothing may fail.
  const double worst = may_fail ? 0.1 : 0.015;
  const auto chance = [&] {
    return random_() % 2 == 0 ? 0.0 : worst * static_cast<double>(random_() % 1000) / 1000;
  };
  rig_.net.loss = chance();
  rig_.net.corruption = chance();
  rig_.net.duplication = chance() * 3;
  rig_.net.reordering = chance() * 3;
  rig_.net.delaying = chance();
  rig_.net.room = random_() % 4 == 0 ? 40 : 1 << 20;
}

// Receives come first: a check of an acknowledged message may ask whether it was received.
void Round::completions_take() {
  struct Taken {
    Flow* flow;
    Completion completion;
  };
  std::vector<Taken> sent;
  for (const bool at_a : {true, false}) {
    for (const Completion& one : (at_a ? a_cq_ : b_cq_).drain()) {
      progress_ns_ = rig_.clock.now_ns();
      const auto link = std::find_if(links_.begin(), links_.end(), [&](const auto& candidate) {
        return (at_a ? candidate->a : candidate->b).number() == one.qpn;
      });
      if (!judge_.check(link != links_.end(), "completion of QP ", one.qpn)) return;
      if (one.opcode == kCqeRequester || one.opcode == kCqeRequesterError) {
        sent.push_back({at_a ? (*link)->there.get() : (*link)->back.get(), one});
      } else {
        (at_a ? *(*link)->back : *(*link)->there).received(one);
      }
    }
  }
  for (const Taken& one : sent) one.flow->sent(one.completion);
}

// What the two applications do in one step.
void Round::work() {
  for (const auto& link : links_) {
    for (Flow* flow : {link->there.get(), link->back.get()}) {
      if (random_() % 4 == 0) flow->send(static_cast<uint32_t>(random_() % 12));
      // Now and then no receives are posted for a while.
      const bool starving = (rig_.clock.now_ns() >> 19) % 4 == 0;
      if (!starving || random_() % 64 == 0) flow->receive(static_cast<uint32_t>(random_() % 8));
    }
  }
}

bool Round::settled() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) {
    return (link->there->all_done() && link->back->all_done()) || link->there->failed() ||
           link->back->failed();
  });
}

// The application gives up: everything is flushed. Before that, dead QPs get more WQEs to flush.
void Round::stop() {
  for (const auto& link : links_) {
    for (Flow* flow : {link->there.get(), link->back.get()}) {
      for (int i = 0; flow->failed() && i < 3; i++) flow->send_in_vain();
      flow->stop();
    }
    for (TestQp* qp : {&link->a, &link->b}) {
      judge_.check(qp->to_state(IBV_QPS_ERR) == 0, "cannot go to ERR");
    }
  }
}

void Round::run() {
  const uint64_t step_ns = pick(std::array<uint64_t, 3>{5'000, 20'000, 50'000}, random_);
  while (judge_.ok() && !settled()) {
    work();
    rig_.step(step_ns);
    if (random_() % 4 != 0) continue;
    completions_take();
    judge_.check(rig_.clock.now_ns() - progress_ns_ < kCampaignPatienceNs, "no progress any more");
  }
  if (may_fail_) stop();
  for (int i = 0; judge_.ok() && (i < 200 || rig_.net.in_flight() > 0); i++) rig_.step(step_ns);
  completions_take();
  if (!judge_.ok()) return;
  for (const auto& link : links_) {
    link->there->finish();
    link->back->finish();
  }
  shared_judge(at_a_);
  shared_judge(at_b_);
  counters_judge();
}

void Round::shared_judge(const Flow::SharedWord& word) const {
  std::vector<uint64_t> got = word.originals;
  std::sort(got.begin(), got.end());
  judge_.check(std::adjacent_find(got.begin(), got.end()) == got.end(),
               "two increments of a word returned the same");
  const uint64_t value = word.value();
  judge_.check(value <= word.posted && value >= got.size(), "a word was incremented ", value,
               " times instead of ", word.posted);
  judge_.check(may_fail_ || (value == word.posted && got.size() == value),
               "a word was incremented ", value, " times instead of ", word.posted);
  judge_.check(got.empty() || got.back() < value, "an increment returned ",
               got.empty() ? 0 : got.back(), " of ", value);
}

void Round::counters_judge() {
  const FabricNic &a = rig_.a.fabric_nic, &b = rig_.b.fabric_nic;
  judge_.check(a.tx_packets + b.tx_packets == rig_.net.carried, "the NICs count ",
               a.tx_packets + b.tx_packets, " packets sent, the wire ", rig_.net.carried);
  judge_.check(a.icrc_errors + b.icrc_errors == rig_.net.corrupted, "the NICs count ",
               a.icrc_errors + b.icrc_errors, " damaged packets, the wire ", rig_.net.corrupted);
  judge_.check(a.rx_packets + b.rx_packets == rig_.net.delivered - rig_.net.corrupted,
               "the NICs count ", a.rx_packets + b.rx_packets, " packets received, the wire ",
               rig_.net.delivered - rig_.net.corrupted);
  judge_.check(a.dropped_packets + b.dropped_packets == 0, "packets dropped without any fault");
}

void Round::report(CampaignReport* report) const {
  report->rounds++;
  report->packets += rig_.net.carried;
  report->retransmits += rig_.a.fabric_nic.retransmits + rig_.b.fabric_nic.retransmits;
  for (const auto& link : links_) {
    for (const Flow* flow : {link->there.get(), link->back.get()}) {
      report->messages += flow->messages();
      report->bytes += flow->bytes();
      report->failures += flow->failed() ? 1 : 0;
    }
  }
}

}  // namespace

CampaignReport campaign_run(const CampaignOptions& options) {
  Judge judge;
  Random random(options.seed * 2 + (options.may_fail ? 1 : 0));
  CampaignReport report;
  while (judge.ok() && report.messages < options.messages) {
    const FlowOptions flow = {
        .messages = options.may_fail ? 100u : 420u, .mtu = 0, .may_fail = options.may_fail};
    Round round(judge, random, flow);
    round.run();
    round.report(&report);
  }
  report.problem = judge.problem();
  return report;
}

}  // namespace cxemu::test

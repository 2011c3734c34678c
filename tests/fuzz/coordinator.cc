// Runs a schedule of the simulation while somebody forges messages. Whoever it is, the judges'
// rules must hold for the honest pairs as they do without him.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>

#include "group/fault_sink.h"
#include "group/member_modify.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "sim/message_text.h"
#include "sim/simulation.h"
#include "tests/fuzz/forger.h"
#include "tests/fuzz/targets.h"

namespace shift::fuzz {
namespace {

using control::Host;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// The kinds of forgers.
enum class Who : uint8_t {
  kElsewhere,     // a process at none of the peers' addresses, which knows all that is said
  kAtTheAddress,  // a process at the peer's address, which does not know the start PSNs
  kFalsePeer,     // a process with a QP that is connected to a third one of a host
  kCount,
};

// What is read first of all from the input.
struct Plan {
  explicit Plan(Input& in)
      : seed(in.take<uint32_t>()),
        who(static_cast<Who>(in.below(static_cast<uint8_t>(Who::kCount)))),
        victim(in.below(2)),
        lost(in.take<uint8_t>()) {}
  uint32_t seed;
  Who who;
  size_t victim;  // the host to which the false peer's QP is connected
  uint8_t
      lost;  // one bit for each of the false peer's honest messages, again and again: it is lost
};

// Has a channel, and listens to nobody.
struct Stranger final : net::Delegate {
  bool knows_qp(const wire::QpName&) override { return false; }
  bool expects(const wire::QpName&, const wire::QpName&) override { return false; }
  bool relies_on(const net::PeerChannel*) override { return false; }
  void on_message(net::PeerChannel*, const wire::Message&) override {}
  void on_channel_down(net::PeerChannel*) override {}
};

// Requests between the false peer and its victim arrive, and nobody looks at them.
struct NoJudge final : sim::Observer {
  void fault_seen(const char*, const sim::Packet*, int, int) override {}
  uint64_t executed(const sim::Packet&, const group::PostedRecv*) override { return 0; }
  uint64_t read_again(const sim::Packet&) override { return 0; }
  void data_came(const sim::Packet&, uint64_t) override {}
};

class Attack final : public sim::Simulation {
 public:
  static constexpr size_t kMessagesMax = 40;
  static constexpr uint8_t kFalseNet = 3;  // the second byte of the false peer's addresses

  Attack(const sim::Schedule& schedule, const Plan& plan, Input script, std::FILE* out)
      : Simulation(schedule, out, plan.who == Who::kFalsePeer ? 1 : 0),
        plan_(plan),
        script_(script),
        pairs_(1 + schedule.more.size()) {
    for (const auto& host : hosts_)
      for (const group::Group* group : host->groups) forger_.know(group->life.ends.local);
    forger_.know({wire::Gid::from_ipv4(0x0101017f), 0x1234});
    if (plan.who == Who::kFalsePeer) {
      false_peer_make();
      forger_.samples_make(falses()->life.ends.local, victims()->life.ends.local);
    } else {
      const Host& victim = *hosts_[plan.victim];
      forger_.samples_make(hosts_[1 - plan.victim]->group->life.ends.local,
                           victim.group->life.ends.local);
    }
    network_.has_address = [this](const net::Delegate& host, uint32_t ip_be) {
      if (&host == &stranger_) return plan_.who == Who::kAtTheAddress;
      return peer_ == nullptr || &host != &peer_->coordinator ||
             reinterpret_cast<const uint8_t*>(&ip_be)[1] == kFalseNet;
    };
  }
  ~Attack() override {
    // The hosts say their last words when this object is gone.
    network_.has_address = [](const net::Delegate&, uint32_t) { return true; };
    network_.copies = [](const wire::Message&) { return 1; };
    if (peer_ == nullptr) return;
    peer_->forget();
    time_.drop_all();
    peer_.reset();
    group::fault_sink = &sinks_;
  }

 protected:
  void begun() override {
    if (peer_ != nullptr) {
      hosts_[plan_.victim]->coordinator.group_add(victims());
      peer_->coordinator.group_add(falses());
      for (int i = 0; i < 3; i++) {
        post(*victims());
        post(*falses());
      }
    }
    microseconds when{0};
    for (size_t i = 0; i < kMessagesMax && !script_.ended(); i++) {
      // It is said after a pause of microseconds to half a second, or when so many more messages
      // of the honest ends have come.
      const uint8_t pause = script_.take<uint8_t>();
      const uint8_t kind = script_.take<uint8_t>();
      const size_t to = kind & 1;
      const bool in_turn = (kind & 2) != 0;
      Script bytes;
      script_.take(bytes.data(), bytes.size());
      if (in_turn) {
        in_turn_.push_back({pause, to, bytes});
        continue;
      }
      when += microseconds((2 + (pause >> 4)) << (pause & 15));
      time_.in(when, [this, to, bytes] { forged_send(to, Input(bytes)); });
    }
  }
  void heard(const net::Delegate&, const wire::Message& message) override {
    forger_.hear(message);
    if (in_turn_.empty() || in_turn_.front().left-- > 0) return;
    const InTurn next = in_turn_.front();
    in_turn_.pop_front();
    forged_send(next.to, Input(next.bytes));
  }
  void stepped() override {
    if (peer_ != nullptr) fabric_.look();
  }
  bool is_unjudged(uint64_t qpn) const override {
    return peer_ != nullptr && (victims()->qpn() == qpn || falses()->qpn() == qpn);
  }
  bool is_confused(uint64_t qpn) const override {
    return peer_ != nullptr && falses()->qpn() == qpn;
  }

 private:
  using Script = std::array<uint8_t, Forger::kScript>;
  struct InTurn {
    uint8_t left;  // how many messages come before it
    size_t to;
    Script bytes;
  };

  group::Group* victims() const { return hosts_[plan_.victim]->groups[pairs_]; }
  group::Group* falses() const { return peer_->groups[pairs_]; }

  void false_peer_make() {
    peer_ =
        std::make_unique<Host>(time_, network_, sinks_, kFalseNet, 2, static_cast<int>(pairs_) + 1);
    group::fault_sink = &sinks_;  // each new host takes its place
    Host& victim = *hosts_[plan_.victim];
    victim.connect(*peer_, 1000, 2000, pairs_);
    peer_->connect(victim, 2000, 1000, pairs_);
    // One process has one mode, and one way to ask.
    const sim::AppPlan& own = schedule_.apps[plan_.victim];
    victims()->mode = own.mode;
    victims()->life.asked.attr.timeout = own.timeout;
    fabric_.end_set(0, victim.world, *victims());
    fabric_.end_set(1, peer_->world, *falses());
    for (group::Group* one : {victims(), falses()}) group::count_packets(*one);
    forger_.know(falses()->life.ends.local);
    // It is an honest end but for what is forged in its name, and for what it does not say.
    network_.copies = [this, honest = network_.copies](const wire::Message& message) {
      const bool is_its = std::visit(
          [this](const auto& m) {
            if constexpr (requires { m.to; }) return m.from == falses()->life.ends.local;
            return false;
          },
          message);
      return is_its && (plan_.lost >> (said_++ % 8) & 1) != 0 ? 0 : honest(message);
    };
  }
  void post(group::Group& group) {
    ibv_sge sge{0x5000, 8, group::kLkey};
    ibv_recv_wr receive{1u << 20, nullptr, &sge, 1}, *bad_receive;
    ibv_send_wr wr{}, *bad;
    wr.wr_id = 1;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.opcode = IBV_WR_SEND;
    const auto post_send = group.asks_responder() ? ops::post_send_counted : ops::post_send;
    const bool posted = ops::post_recv(group.handle(), &receive, &bad_receive) == 0 &&
                        post_send(group.handle(), &wr, &bad) == 0;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {0x7000, group::kRkey};
    require(posted && post_send(group.handle(), &wr, &bad) == 0, "a post is refused");
  }
  void forged_send(size_t to, Input script) {
    if (gone_[to]) return;
    auto message = forger_.forge(script);
    if (!message) return;
    // Whoever knows the start PSNs at the right address is the peer as far as anybody can tell.
    auto* bind = std::get_if<wire::Bind>(&*message);
    if (bind != nullptr && plan_.who == Who::kAtTheAddress) {
      bind->flags |= wire::Bind::kHasSqPsn;
      bind->sq_psn ^= 0x5a5a5a;
    }
    net::Delegate& from = peer_ != nullptr ? static_cast<net::Delegate&>(peer_->coordinator)
                                           : static_cast<net::Delegate&>(stranger_);
    if (out_ != nullptr)
      std::fprintf(out_, "  forged to %c: %s\n", "ab"[to], sim::message_text(*message).c_str());
    network_.channel_open(from, hosts_[to]->coordinator)->send(*message);
  }

  const Plan plan_;
  Input script_;
  const size_t pairs_;  // how many are judged
  Forger forger_;
  Stranger stranger_;
  std::unique_ptr<Host> peer_;
  NoJudge no_judge_;
  sim::RcFabric fabric_{time_, no_judge_};
  std::deque<InTurn> in_turn_;
  unsigned said_ = 0;
};

}  // namespace

void coordinator(std::span<const uint8_t> input) {
  static const bool fixed = [] {
    sim::settings_fix();
    return true;
  }();
  static const bool traces = std::getenv("SHIFT_FUZZ_TRACE") != nullptr;
  Input in(input);
  const Plan plan(in);
  if (!fixed) return;
  Attack attack(sim::schedule_make(plan.seed), plan, in, traces ? stderr : nullptr);
  const std::string& broken = attack.run();
  require(broken.empty(), broken.c_str());
}

}  // namespace shift::fuzz

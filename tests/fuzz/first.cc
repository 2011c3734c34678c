// A process has one honest peer. Strangers connect and say what they like; without the job key, or
// the secret half of the honest peer's identity, nobody is taken for that peer, and it loses
// nothing.
#include <algorithm>
#include <array>
#include <set>

#include "net/peer_net.h"
#include "net/seal.h"
#include "tests/fuzz/net_ends.h"
#include "util/log.h"

namespace shift::fuzz {
namespace {

constexpr size_t kCallers = 4;
constexpr int kFirstDeeds = 24;
constexpr uint32_t kHonestSeq = 1000;  // from here on, in messages of the honest peer

const wire::Instance kHonest = instance_of(0x11);

class Process final : public net::Delegate {
 public:
  Process(net::Reactor& reactor, bool keyed)
      : net(reactor, *this, net::PeerNetOptions{own_port()}, job_keys(keyed)) {
    net.add_address(own_ip(1));
  }
  bool knows_qp(const wire::QpName& name) override { return name == ours || name == second; }
  bool expects(const wire::QpName& own, const wire::QpName& peer) override {
    return (own == ours && peer == theirs) || (own == second && peer.qpn == 9);
  }
  bool relies_on(const net::PeerChannel* channel) override { return peer(channel) == kHonest; }
  void on_message(net::PeerChannel* channel, const wire::Message& message) override {
    const auto* numbered = std::get_if<wire::Switch>(&message);
    const bool is_honest = numbered != nullptr && numbered->seq >= kHonestSeq;
    // A stranger that has a channel of its own may say there what it has recorded.
    if (peer(channel) != kHonest) return;
    require(is_honest, "a stranger's message is the peer's");
    require(numbered->seq == kHonestSeq + taken++, "a message counts twice or never");
  }
  void on_connection_up(net::PeerChannel*, bool) override { ups++; }
  void on_channel_down(net::PeerChannel* channel) override {
    require(peer(channel) != kHonest, "the peer's channel is lost");
  }
  static const wire::Instance& peer(const net::PeerChannel* channel) {
    return static_cast<const net::Channel*>(channel)->peer();
  }

  const wire::QpName ours = name_of(own_ip(1), 7), second = name_of(own_ip(1), 8);
  const wire::QpName theirs = name_of(own_ip(2), 5);
  uint32_t taken = 0;
  int ups = 0;
  net::PeerNet net;  // last, since it calls this object
};

class Scene {
 public:
  Scene(net::Reactor& reactor, bool keyed)
      : reactor_(reactor), keyed_(keyed), keys_(job_keys(true)), process_(reactor, keyed) {
    wire::Hello hello;
    hello.instance = kHonest;
    hello.identity = identity_of(0x11).public_key();
    hello.want = process_.ours;
    hello.from = process_.theirs;
    if (keyed) hello.key = keys_->id(0), hello.tag = net::hello_tag({kRightKey, {}}, hello);
    honest_ = call(2);
    recorded_.push_back(honest_->say(hello));
    settle(reactor_);
    const auto reply = honest_->hear();
    require(reply && reply->instance == process_.net.instance(), "the peer is not answered");
    wire::Confirm confirm;
    confirm.tag = confirm_tag(0x11, 2, kRightKey, hello, *reply);
    recorded_.push_back(honest_->say(confirm));
    settle(reactor_);
    require(process_.ups == 1, "the peer does not join");
  }
  void deed(Input& in) {
    const size_t at = in.below(kCallers);
    switch (in.below(7)) {
      case 0:
        return open(at, in);
      case 1:
        return say_raw(at, in);
      case 2:
        return say_hello(at, in);
      case 3:
        return say_confirm(at, in);
      case 4:
        return say_message(at, in);
      case 5:
        return honest_says();
      default:
        if (callers_[at]) callers_[at]->say(recorded_[in.take<uint8_t>() % recorded_.size()]);
    }
  }
  void rest() {
    settle(reactor_);
    for (size_t i = 0; i < kCallers; i++) {
      if (!callers_[i]) continue;
      const auto reply = callers_[i]->hear();
      if (!reply) continue;
      replies_[i] = *reply;
      require(reply->status == wire::HelloStatus::kOk || reply->instance.is_zero(),
              "somebody who is denied learns who the process is");
    }
    const net::Channel* channel = process_.net.find_channel(kHonest);
    require(channel != nullptr && channel->live_connections() == 1, "somebody joins the peer");
    require(!channel->is_at(own_ip(3)) && !channel->is_at(own_ip(4)), "the peer is elsewhere");
    require(!keyed_ || process_.ups == 1, "somebody without a key joins");
    require(process_.net.find_channel(process_.net.instance()) == nullptr,
            "somebody is this process");
    require(process_.net.channel_count() <= 1 + kCallers * 4, "there are too many channels");
  }
  void honest_says() {
    Bytes bytes;
    const wire::Switch message{process_.theirs, process_.ours, 1, kHonestSeq + said_, 0};
    require(wire::encode(message, bytes, 10 + said_), "no memory");
    const net::Way way{kHonest, process_.net.instance()};
    if (keyed_) require(net::seal(kRightKey, keys_->id(0), way, bytes), "no memory");
    honest_->say(bytes);
    if (recorded_.size() < 8) recorded_.push_back(bytes);
    said_++;
    settle(reactor_);
    require(process_.taken == said_, "the peer is not heard");
  }

 private:
  std::unique_ptr<Caller> call(unsigned from) {
    const uint64_t key = keyed_ ? keys_->id(0) : 0;
    auto made =
        std::make_unique<Caller>(own_ip(from), own_ip(1), net::Secrets::port_of(own_port(), key));
    settle(reactor_);
    return made;
  }
  // The tag of a process that is played here, at one of the addresses.
  wire::Tag confirm_tag(uint8_t who, unsigned from, net::SecretKey job_key,
                        const wire::Hello& hello, const wire::HelloReply& reply) const {
    if (keyed_) return net::confirm_tag({job_key, {}}, hello, reply, {});
    const auto key = identity_of(who).pair_key(reply.identity, reply.instance);
    if (!key) return {};
    return net::confirm_tag({*key, {own_ip(from), own_ip(1)}}, hello, reply, {});
  }
  // A stranger may be at the honest peer's address only where there are keys (docs/security.md).
  void open(size_t at, Input& in) {
    hellos_[at] = {};
    replies_[at] = {};
    from_[at] = keyed_ ? 2 + in.below(3) : 3 + in.below(2);
    callers_[at] = call(from_[at]);
  }
  void say_raw(size_t at, Input& in) {
    Bytes bytes(in.below(64));
    in.take(bytes.data(), bytes.size());
    if (callers_[at]) callers_[at]->say(bytes);
  }
  void say_hello(size_t at, Input& in) {
    if (!callers_[at]) open(at, in);
    wire::Hello hello;
    const wire::Instance who[] = {
        kHonest, instance_of(0x33), instance_of(0x44), {}, process_.net.instance()};
    hello.instance = who[in.below(5)];
    const wire::Instance targets[] = {{}, process_.net.instance(), kHonest};
    hello.target = targets[in.below(3)];
    const wire::QpName names[] = {process_.ours, process_.second, process_.theirs,
                                  name_of(own_ip(from_[at]), 9)};
    hello.want = names[in.below(4)];
    hello.from = names[in.below(4)];
    const uint8_t sign = in.below(4);
    if (sign != 0) hello.key = sign == 1 ? 0 : keys_->id(0);
    if (sign == 3) hello.tag = net::hello_tag({kWrongKey, {}}, hello);
    const uint8_t shown[] = {0x11, 0x33, 0x44};
    hello.identity = identity_of(shown[in.below(3)]).public_key();
    hellos_[at] = hello;
    callers_[at]->say(hello);
  }
  void say_confirm(size_t at, Input& in) {
    if (!callers_[at]) return;
    wire::Confirm confirm;
    const uint8_t who[] = {0x33, 0x44};
    confirm.tag = confirm_tag(who[in.below(2)], from_[at], kWrongKey, hellos_[at], replies_[at]);
    if (in.below(4) == 0) confirm.tag = {};
    callers_[at]->say(confirm);
  }
  void say_message(size_t at, Input& in) {
    if (!callers_[at]) return;
    Bytes bytes;
    const wire::Switch message{process_.theirs, process_.ours, 1, in.take<uint8_t>(), 0};
    require(wire::encode(message, bytes, in.take<uint32_t>()), "no memory");
    const net::Way way{kHonest, process_.net.instance()};
    if (in.below(3) == 0) require(net::seal(kWrongKey, keys_->id(0), way, bytes), "no memory");
    callers_[at]->say(bytes);
  }

  net::Reactor& reactor_;
  const bool keyed_;
  const std::unique_ptr<JobKeys> keys_;
  Process process_;
  std::unique_ptr<Caller> honest_;
  std::array<std::unique_ptr<Caller>, kCallers> callers_;
  std::array<unsigned, kCallers> from_{};
  std::array<wire::Hello, kCallers> hellos_;
  std::array<wire::HelloReply, kCallers> replies_;
  std::vector<Bytes> recorded_;  // what the honest peer said
  uint32_t said_ = 0;
};

}  // namespace

void first(std::span<const uint8_t> input) {
  static net::Reactor reactor;
  log_set_level(static_cast<LogLevel>(-1));
  Input in(input);
  {
    Scene scene(reactor, in.below(2) == 1);
    for (int i = 0; i < kFirstDeeds && !in.ended(); i++) {
      scene.deed(in);
      scene.rest();
    }
    scene.honest_says();
    scene.rest();
  }
  settle(reactor);
}

}  // namespace shift::fuzz

// Processes of one host share a port. Whoever does not know the job key learns nothing as a sharer,
// and takes nobody in as an owner; and no packet makes a process lose descriptors.
#include <algorithm>
#include <array>

#include "net/local_packet.h"
#include "net/port_owner.h"
#include "net/port_sharer.h"
#include "tests/fuzz/net_ends.h"
#include "util/log.h"

namespace shift::fuzz {
namespace {

constexpr int kLocalDeeds = 20;
constexpr size_t kSharers = 3;

// A packet decodes to what it was made of, and to nothing else.
void check_codec(Input& in) {
  const auto rest = in.rest();
  net::LocalPacket packet;
  if (!net::local_decode(rest, packet)) return;
  Bytes again;
  require(net::local_encode(packet, again) && again.size() == rest.size(),
          "a packet has two sizes");
  // The sequence number of the Hello is not looked at.
  constexpr size_t kSequenceAt = 6 + 12;
  for (size_t i = 0; i < again.size(); i++)
    require(again[i] == rest[i] || (i >= kSequenceAt && i < kSequenceAt + 8),
            "a packet has two forms");
}

net::LocalPacket packet_of(Input& in) {
  net::LocalPacket packet;
  packet.kind = static_cast<net::LocalKind>(1 + in.below(6));
  packet.id = in.below(4);
  packet.yes = in.below(2) == 1;
  packet.hello.instance = instance_of(in.below(4));
  packet.hello.nonce.raw.fill(in.take<uint8_t>());
  packet.hello.want.qpn = 6 + in.below(3);
  return packet;
}

// The packet that waits at this end.
bool receive(int fd, net::LocalPacket& packet) {
  std::array<uint8_t, net::kLocalPacketMax> buffer;
  UniqueFd passed;
  const ssize_t n = net::local_receive(fd, buffer, passed);
  return n > 0 && net::local_decode({buffer.data(), static_cast<size_t>(n)}, packet);
}

void send(int fd, const net::LocalPacket& packet, int passed) {
  Bytes bytes;
  require(net::local_encode(packet, bytes), "no memory");
  (void)net::local_send(fd, bytes, passed);
}

void send_raw(int fd, Input& in, int passed) {
  Bytes bytes(1 + in.below(200));
  in.take(bytes.data(), bytes.size());
  (void)net::local_send(fd, bytes, passed);
}

struct Rooms {
  explicit Rooms(net::Reactor& reactor, net::RendezvousHost& host)
      : inbound(reactor, host, lobby) {}
  net::Lobby lobby{8}, local_lobby{4};
  net::Inbound inbound;
};

// A process that owns the port, and others that say that they share it.
class FalseSharers {
 public:
  FalseSharers(net::Reactor& reactor, bool keyed)
      : reactor_(reactor),
        keys_(job_keys(keyed)),
        host_(keyed),
        rooms_(reactor, host_),
        name_(host_.secrets().local_name(own_ip(1), own_port(), key())) {
    owner_.emplace(reactor, host_,
                   net::PortOwner::Rooms{rooms_.lobby, rooms_.local_lobby, rooms_.inbound},
                   own_ip(1), own_port(), key(), net::local_listen(name_));
    require(owner_->start(), "the port is taken");
  }
  void deed(Input& in) {
    Sharer& sharer = sharers_[in.below(kSharers)];
    const uint8_t what = in.below(6);
    if (what == 0 || !sharer.fd) {
      sharer = {net::local_connect(name_), {}, false};
      return;
    }
    const int passed = in.below(4) == 0 ? sharer.fd.get() : -1;
    if (what == 1) return send_raw(sharer.fd.get(), in, passed);
    if (what == 2) return call(in);
    net::LocalPacket packet = packet_of(in);
    if (what == 3) {
      packet.kind = net::LocalKind::kRegister;
      const bool knows = in.below(3) != 0;
      packet.hello.tag =
          net::register_tag(knows ? kRightKey : kWrongKey, name_, sharer.challenge, packet.hello);
      sharer.proved = sharer.proved || knows;
    }
    send(sharer.fd.get(), packet, passed);
  }
  void rest() {
    settle(reactor_);
    for (Sharer& sharer : sharers_) {
      net::LocalPacket packet;
      while (sharer.fd && receive(sharer.fd.get(), packet)) {
        if (packet.kind == net::LocalKind::kChallenge) sharer.challenge = packet.hello.nonce;
        require(packet.kind == net::LocalKind::kChallenge || keys_ == nullptr || sharer.proved,
                "a process without the key is a sharer");
      }
    }
    require(rooms_.lobby.taken() <= 8 && rooms_.local_lobby.taken() <= 4,
            "there are too many guests");
  }

 private:
  struct Sharer {
    UniqueFd fd;
    wire::Nonce challenge;
    bool proved = false;
  };
  uint64_t key() const { return keys_ != nullptr ? keys_->id(0) : 0; }
  // Somebody looks for a QP or a process.
  void call(Input& in) {
    if (callers_.size() == 2) callers_.clear();
    wire::Hello hello = packet_of(in).hello;
    hello.instance = instance_of(9);
    hello.key = key();
    if (in.below(2) == 0) hello.target = instance_of(in.below(4));
    if (key() != 0) hello.tag = net::hello_tag({kRightKey, {}}, hello);
    callers_.push_back(std::make_unique<Caller>(own_ip(2), own_ip(1), own_port()));
    callers_.back()->say(hello);
  }

  net::Reactor& reactor_;
  const std::unique_ptr<JobKeys> keys_;
  LoneProcess host_;
  Rooms rooms_;
  const std::string name_;
  std::optional<net::PortOwner> owner_;
  std::array<Sharer, kSharers> sharers_;
  std::vector<std::unique_ptr<Caller>> callers_;
};

// A process that shares the port, and another one that says that it owns it.
class FalseOwner {
  static constexpr char kName[] = "a local socket";

 public:
  FalseOwner(net::Reactor& reactor, bool keyed)
      : reactor_(reactor), keys_(job_keys(keyed)), host_(keyed), rooms_(reactor, host_) {
    int fds[2];
    require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0,
            "no sockets");
    owner_ = UniqueFd(fds[0]);
    sharer_.emplace(reactor, host_, rooms_.inbound, UniqueFd(fds[1]), kName,
                    keys_ != nullptr ? keys_->id(0) : 0);
    require(sharer_->start([this] { lost_++; }), "the reactor takes no descriptor");
  }
  void deed(Input& in) {
    const int passed = in.below(2) == 0 ? owner_.get() : -1;
    const uint8_t what = in.below(4);
    if (what == 0) return send_raw(owner_.get(), in, passed);
    net::LocalPacket packet = packet_of(in);
    if (what == 1) {
      packet.kind = net::LocalKind::kWelcome;
      const bool knows = in.below(3) != 0;
      packet.hello.tag =
          net::welcome_tag(knows ? kRightKey : kWrongKey, kName, challenge_, registered_);
      proved_ = proved_ || knows;
    } else if (packet.kind == net::LocalKind::kChallenge) {
      challenge_ = packet.hello.nonce;
    }
    send(owner_.get(), packet, passed);
  }
  void rest() {
    settle(reactor_);
    net::LocalPacket packet;
    while (receive(owner_.get(), packet)) {
      if (packet.kind == net::LocalKind::kRegister) registered_ = packet.hello;
      require(packet.kind == net::LocalKind::kRegister || packet.kind == net::LocalKind::kAnswer,
              "a sharer speaks as an owner");
      require(packet.kind == net::LocalKind::kRegister || keys_ == nullptr || proved_,
              "a sharer answers an owner without the key");
    }
    require(!sharer_->is_welcome() || keys_ == nullptr || proved_,
            "an owner without the key is one");
    require(lost_ <= 1, "the owner is lost twice");
    require(host_.taken == 0, "what is no connection joins");
  }

 private:
  net::Reactor& reactor_;
  const std::unique_ptr<JobKeys> keys_;
  LoneProcess host_;
  Rooms rooms_;
  UniqueFd owner_;
  std::optional<net::PortSharer> sharer_;
  wire::Nonce challenge_;
  wire::Hello registered_;
  bool proved_ = false;
  int lost_ = 0;
};

template <typename Scene>
void play(net::Reactor& reactor, Input& in) {
  const size_t before = descriptors();
  {
    Scene scene(reactor, in.below(2) == 1);
    for (int i = 0; i < kLocalDeeds && !in.ended(); i++) {
      scene.deed(in);
      scene.rest();
    }
  }
  settle(reactor);
  require(descriptors() == before, "a descriptor is lost");
}

}  // namespace

void local(std::span<const uint8_t> input) {
  static net::Reactor reactor;
  log_set_level(static_cast<LogLevel>(-1));
  Input in(input);
  const uint8_t form = in.below(4);
  if (form == 0) return check_codec(in);
  if (form == 1) return play<FalseOwner>(reactor, in);
  play<FalseSharers>(reactor, in);
}

}  // namespace shift::fuzz

// Tests processes with job keys: who has one in common finds each other, nobody else does, and what
// goes over the wire cannot be read, made, changed or repeated by others.
#include <poll.h>
#include <sys/socket.h>

#include "net/local_packet.h"
#include "net/proof.h"
#include "net/seal.h"
#include "net/socket.h"
#include "net/test/net_fixture.h"

namespace shift::net::test {
namespace {

using Secret = std::array<uint8_t, kJobKeySize>;

Secret secret(uint8_t seed) {
  Secret s;
  s.fill(seed);
  return s;
}

std::unique_ptr<JobKeys> keys(std::initializer_list<uint8_t> seeds) {
  std::vector<Secret> all;
  for (const uint8_t seed : seeds) all.push_back(secret(seed));
  return all.empty() ? nullptr : JobKeys::make(all);
}

// Whether two processes with these keys find each other, and whether a message arrives.
FindError meet(std::initializer_list<uint8_t> serving, std::initializer_list<uint8_t> looking) {
  const wire::QpName name = qp(ip(30), 7);
  Node server(keys(serving)), client(keys(looking));
  server.notes.add_qp(name);
  server.serve(ip(30));
  const Found found = client.find(qp(ip(1), 1), name, 1500ms);
  if (found.error != FindError::kNone) return found.error;
  EXPECT_EQ(client.send(found.channel, numbered(5)), 1u);
  EXPECT_TRUE(server.notes.wait_message(numbered(5)));
  // The answer, too, is understood.
  PeerChannel* back = server.notes.last_up();
  EXPECT_EQ(server.send(back, numbered(6)), 1u);
  EXPECT_TRUE(client.notes.wait_message(numbered(6)));
  return FindError::kNone;
}

TEST(Keys, WhoHasAKeyInCommonMeets) {
  EXPECT_EQ(meet({1}, {1}), FindError::kNone);
  EXPECT_EQ(meet({2, 1}, {1, 2}), FindError::kNone) << "while keys are changed";
  EXPECT_EQ(meet({1}, {2, 1}), FindError::kNone) << "the old key is tried, too";
  EXPECT_EQ(meet({2, 1}, {1}), FindError::kNone);
}

TEST(Keys, OthersDoNotMeet) {
  EXPECT_NE(meet({1}, {2}), FindError::kNone);
  EXPECT_NE(meet({1}, {}), FindError::kNone);
  EXPECT_NE(meet({}, {1}), FindError::kNone);
}

TEST(Keys, TwoTenantsOfOneHostDoNotHearEachOther) {
  const wire::QpName one = qp(ip(31), 7), two = qp(ip(31), 8);
  Node first(keys({1})), second(keys({2})), peer(keys({2}));
  first.notes.add_qp(one);
  second.notes.add_qp(two);
  first.serve(ip(31));
  second.serve(ip(31));
  EXPECT_EQ(peer.find(qp(ip(1), 1), two).error, FindError::kNone);
  EXPECT_NE(peer.find(qp(ip(1), 1), one, 700ms).error, FindError::kNone);
  EXPECT_TRUE(first.notes.asked().empty());
}

TEST(Keys, ProcessesOfOneHostShareThePortOfTheirKey) {
  const wire::QpName name = qp(ip(32), 9);
  Node owner(keys({1})), sharer(keys({1})), peer(keys({1}));
  owner.serve(ip(32));
  sharer.notes.add_qp(name);
  sharer.serve(ip(32));
  const Found found = peer.find(qp(ip(1), 1), name);
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_EQ(real(found.channel).peer(), sharer.net->instance());
}

// Somebody who listens on the wire, or sits at the address, without the key.
class Wire : public ::testing::Test {
 protected:
  Wire() {
    node_.notes.add_qp(ours_);
    node_.serve(here_);
    // The process listens when an honest peer has found it.
    Node honest(keys({1}));
    EXPECT_EQ(honest.find(qp(ip(1), 1), ours_).error, FindError::kNone);
    // The honest peer has its answer before the process has noted the connection.
    EXPECT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 1; }));
  }
  ~Wire() override {
    if (fd_ >= 0) close(fd_);
  }
  void connect_to_key() {
    if (fd_ >= 0) close(fd_);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto from = socket_address(ip(66), 0),
               there = socket_address(here_, Secrets::port_of(test_port(), secrets_.key_ids()[0]));
    EXPECT_EQ(bind(fd_, reinterpret_cast<const struct sockaddr*>(&from), sizeof from), 0);
    ASSERT_EQ(connect(fd_, reinterpret_cast<const struct sockaddr*>(&there), sizeof there), 0);
    const struct timeval patience = {30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  void say(const wire::Message& message) {
    std::vector<uint8_t> bytes;
    ASSERT_TRUE(wire::encode(message, bytes));
    ASSERT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Nothing, if the process closed the connection without a word.
  std::optional<wire::HelloReply> hear() {
    uint8_t buffer[512];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    wire::Message message;
    if (n <= 0 || !wire::decode({buffer, static_cast<size_t>(n)}, message)) return {};
    return std::get<wire::HelloReply>(message);
  }
  wire::Hello hello() {
    wire::Hello h;
    h.instance.raw.fill(9);
    h.want = ours_;
    h.from = qp(ip(66), 5);
    h.key = secrets_.key_ids()[0];
    return h;
  }
  wire::Hello signed_hello() {
    auto h = hello();
    h.tag = hello_tag({secrets_.job_key(h.key), {}}, h);
    return h;
  }

  const uint32_t here_ = ip(33);
  const wire::QpName ours_ = qp(here_, 7);
  const Secrets secrets_{keys({1})};
  Node node_{keys({1})};
  int fd_ = -1;
};

TEST_F(Wire, AWrongTagIsMetBySilence) {
  connect_to_key();
  say(hello());
  EXPECT_FALSE(hear());
  connect_to_key();
  auto h = signed_hello();
  h.want.qpn++;  // changed after it was signed
  say(h);
  EXPECT_FALSE(hear());
  connect_to_key();
  h = signed_hello();
  h.key = 0;
  say(h);
  EXPECT_FALSE(hear());
}

// A recorded Hello gets an answer, but the answer has a number that only the key can answer.
TEST_F(Wire, ARecordedHelloOpensNothing) {
  wire::Confirm recorded;
  for (int i = 0; i < 2; i++) {
    connect_to_key();
    const auto h = signed_hello();
    say(h);
    const auto reply = hear();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status, wire::HelloStatus::kOk);
    if (i == 0) recorded.tag = confirm_tag({secrets_.job_key(h.key), {}}, h, *reply, recorded);
    say(recorded);
    if (i == 0) {
      ASSERT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 2; }));
    }
  }
  EXPECT_FALSE(hear()) << "the second time it was the tag of another handshake";
  EXPECT_EQ(node_.notes.ups(), 2);
}

// Somebody without the key listens at the peer's address, and says yes.
TEST_F(Wire, AnAnswerWithoutTheKeyIsNone) {
  const uint16_t port = Secrets::port_of(test_port(), secrets_.key_ids()[0]);
  const UniqueFd listener = tcp_listen(ip(68), port);
  ASSERT_TRUE(listener);
  auto search = node_.find_start(ours_, qp(ip(68), 3), 1s);
  UniqueFd fd;
  for (uint32_t from; !(fd = tcp_accept(listener.get(), from));) usleep(1000);
  uint8_t bytes[512];
  ssize_t n;
  while ((n = recv(fd.get(), bytes, sizeof bytes, 0)) < 0 && errno == EAGAIN) usleep(1000);
  wire::Message message;
  ASSERT_TRUE(n > 0 && wire::decode({bytes, static_cast<size_t>(n)}, message));
  const auto& hello = std::get<wire::Hello>(message);
  wire::HelloReply reply;
  reply.instance.raw.fill(3);
  reply.want = hello.want;
  reply.from = hello.from;
  std::vector<uint8_t> out;
  ASSERT_TRUE(wire::encode(reply, out));
  ASSERT_TRUE(send_whole(fd.get(), out));
  while ((n = recv(fd.get(), bytes, sizeof bytes, 0)) < 0 && errno == EAGAIN) usleep(1000);
  EXPECT_EQ(n, 0) << "there is no Confirm";
  EXPECT_NE(search.get().error, FindError::kNone);
}

// Another user of the host knows the name of the local socket, which the kernel shows to all.
TEST_F(Wire, AProcessWithoutTheKeySharesNoPort) {
  const uint64_t key = secrets_.key_ids()[0];
  const UniqueFd fd =
      local_connect(secrets_.local_name(here_, Secrets::port_of(test_port(), key), key));
  ASSERT_TRUE(fd);
  const auto receive = [&](LocalPacket& packet) {
    uint8_t bytes[kLocalPacketMax];
    UniqueFd none;
    ssize_t n;
    while ((n = local_receive(fd.get(), bytes, none)) < 0 && errno == EAGAIN) usleep(1000);
    return n > 0 && local_decode({bytes, static_cast<size_t>(n)}, packet);
  };
  LocalPacket packet;
  ASSERT_TRUE(receive(packet));
  ASSERT_EQ(packet.kind, LocalKind::kChallenge);
  packet.kind = LocalKind::kRegister;
  packet.hello.instance.raw.fill(4);
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(local_encode(packet, bytes));
  ASSERT_TRUE(local_send(fd.get(), bytes));
  EXPECT_FALSE(receive(packet)) << "it is not welcome";
}

// Somebody without the key has taken the name of the local socket first.
TEST_F(Wire, AnOwnerWithoutTheKeyIsLeft) {
  const uint64_t key = secrets_.key_ids()[0];
  const UniqueFd listener =
      local_listen(secrets_.local_name(ip(34), Secrets::port_of(test_port(), key), key));
  ASSERT_TRUE(listener);
  node_.serve(ip(34));
  UniqueFd fd;
  while (!(fd = local_accept(listener.get()))) usleep(1000);
  LocalPacket packet;
  std::vector<uint8_t> bytes;
  for (const auto kind : {LocalKind::kChallenge, LocalKind::kWelcome}) {
    packet.kind = kind;
    bytes.clear();
    ASSERT_TRUE(local_encode(packet, bytes));
    ASSERT_TRUE(local_send(fd.get(), bytes));
    uint8_t answer[kLocalPacketMax];
    UniqueFd none;
    ssize_t n;
    while ((n = local_receive(fd.get(), answer, none)) < 0 && errno == EAGAIN) usleep(1000);
    EXPECT_EQ(n > 0, kind == LocalKind::kChallenge) << "it registers, and leaves after the welcome";
  }
}

// Everything between two processes goes through it, and it knows how they talk.
class MiddleTest : public ::testing::Test {
 protected:
  MiddleTest() {
    server_.notes.add_qp(theirs_);
    server_.serve(ip(36));
    const uint16_t port = Secrets::port_of(test_port(), secrets_.key_ids()[0]);
    listener_ = tcp_listen(ip(35), port);
    EXPECT_TRUE(listener_);
    auto search = client_.find_start(qp(ip(1), 1), theirs_);
    for (uint32_t from; !(to_client_ = tcp_accept(listener_.get(), from));) usleep(1000);
    do {
      to_server_ = tcp_connect(ip(1), ip(36), port);
      struct pollfd connecting = {to_server_.get(), POLLOUT, 0};
      EXPECT_EQ(poll(&connecting, 1, -1), 1);
    } while (socket_error(to_server_.get()) != 0);  // the process does not listen yet
    while (search.wait_for(1ms) != std::future_status::ready) {
      (void)forward(to_client_, to_server_);
      (void)forward(to_server_, to_client_);
    }
    channel_ = search.get().channel;
    EXPECT_NE(channel_, nullptr);
    while (server_.notes.ups() == 0) {
      (void)forward(to_client_, to_server_);
      usleep(1000);
    }
  }
  static std::vector<uint8_t> take(const UniqueFd& from) {
    std::vector<uint8_t> bytes(1 << 16);
    const ssize_t n = recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return bytes;
  }
  static std::vector<uint8_t> forward(const UniqueFd& from, const UniqueFd& to) {
    auto bytes = take(from);
    EXPECT_TRUE(bytes.empty() || send_whole(to.get(), bytes));
    return bytes;
  }
  // The bytes in which the client says the message; they wait here.
  std::vector<uint8_t> said(uint32_t number) {
    EXPECT_EQ(client_.send(channel_, numbered(number)), 1u);
    std::vector<uint8_t> bytes;
    while (bytes.empty()) bytes = take(to_client_);
    return bytes;
  }

  const wire::QpName theirs_ = qp(ip(35), 7);
  const Secrets secrets_{keys({1})};
  Node server_{keys({1})}, client_{keys({1})};
  UniqueFd listener_, to_client_, to_server_;
  PeerChannel* channel_ = nullptr;
};

TEST_F(MiddleTest, WhoSitsOnTheWayReadsAndRepeatsNothing) {
  const auto first = said(5), second = said(6);
  std::vector<uint8_t> plain;
  ASSERT_TRUE(wire::encode(numbered(5), plain));
  const std::span body(plain.end() - 12, plain.end());
  EXPECT_TRUE(std::ranges::search(first, body).empty());
  for (const auto* bytes : {&first, &first, &second, &first}) {
    ASSERT_TRUE(send_whole(to_server_.get(), *bytes));
  }
  const auto third = said(7);
  ASSERT_TRUE(send_whole(to_server_.get(), third));
  ASSERT_TRUE(server_.notes.wait_message(numbered(7)));
  EXPECT_EQ(server_.notes.count(numbered(5)), 1u);
  EXPECT_EQ(server_.notes.count(numbered(6)), 1u);
  // What this end said is not taken as the other end's word.
  (void)send_whole(to_client_.get(), first);
  while (client_.live(channel_) != 0) usleep(1000);
  EXPECT_EQ(client_.notes.count(numbered(5)), 0u);
}

TEST_F(MiddleTest, WhoSitsOnTheWayChangesNothing) {
  auto bytes = said(5);
  bytes.back() ^= 1;
  ASSERT_TRUE(send_whole(to_server_.get(), bytes));
  ASSERT_TRUE(server_.notes.wait([&] { return server_.notes.downs() == 1; })) << "it is cut";
  EXPECT_EQ(server_.notes.count(numbered(5)), 0u);
}

// Somebody on the way makes a message newer than all that the client is going to say. A process
// that took its number would drop these.
TEST_F(MiddleTest, ANumberCountsOnlyWhenItsFrameHasOpened) {
  auto bytes = said(5);
  constexpr size_t kSequence = wire::kHeaderSize - sizeof(uint64_t);
  const uint64_t before = wire::frame_sequence(bytes);
  bytes[kSequence + 1] = static_cast<uint8_t>(bytes[kSequence + 1] + 4);
  ASSERT_EQ(wire::frame_sequence(bytes), before + 1024);
  ASSERT_TRUE(send_whole(to_server_.get(), bytes));
  // The server cuts the connection, and the client dials again.
  while (server_.live(server_.notes.last_up()) != 0) usleep(1000);
  to_client_.reset();
  for (uint32_t from; !(to_client_ = tcp_accept(listener_.get(), from));) usleep(1000);
  to_server_ = tcp_connect(ip(1), ip(36), Secrets::port_of(test_port(), secrets_.key_ids()[0]));
  struct pollfd connecting = {to_server_.get(), POLLOUT, 0};
  ASSERT_EQ(poll(&connecting, 1, -1), 1);
  while (server_.notes.ups() < 2) {
    (void)forward(to_client_, to_server_);
    (void)forward(to_server_, to_client_);
    usleep(1000);
  }
  ASSERT_TRUE(send_whole(to_server_.get(), said(6)));
  EXPECT_TRUE(server_.notes.wait_message(numbered(6)));
  EXPECT_EQ(server_.notes.count(numbered(5)), 0u);
}

TEST(Seal, OnlyTheKeyAndTheWayOpenAFrame) {
  wire::Instance a, b;
  a.raw.fill(1);
  b.raw.fill(2);
  const Secret key = secret(1), other = secret(2);
  std::vector<uint8_t> plain, opened;
  ASSERT_TRUE(wire::encode(numbered(7), plain, 77));
  auto frame = plain;
  ASSERT_TRUE(seal(key, 5, {a, b}, frame));
  EXPECT_EQ(frame.size(), plain.size() + wire::kSealSize);
  EXPECT_TRUE(wire::frame_is_sealed(frame));
  EXPECT_EQ(sealed_with(frame), 5u);
  EXPECT_EQ(wire::frame_sequence(frame), 77u);
  ASSERT_TRUE(unseal(key, {a, b}, frame, opened));
  EXPECT_EQ(opened, plain);
  EXPECT_FALSE(unseal(other, {a, b}, frame, opened));
  EXPECT_FALSE(unseal(key, {b, a}, frame, opened)) << "it would be an echo";
  for (size_t at = 0; at < frame.size(); at++) {
    auto changed = frame;
    changed[at] ^= 1;
    EXPECT_FALSE(unseal(key, {a, b}, changed, opened)) << at;
  }
}

}  // namespace
}  // namespace shift::net::test

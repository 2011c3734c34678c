// Tests GIDs that hold no address: the resolver asks the link for their addresses, and takes the
// answers as hints only.
#include "net/gid_resolver.h"

#include <poll.h>

#include <random>

#include "net/gid_answerer.h"
#include "net/socket.h"
#include "net/subnet.h"
#include "net/test/net_fixture.h"

namespace shift::net::test {
namespace {

// A link-local GID that no other test program uses.
wire::Gid link_local(uint8_t n) {
  wire::Gid gid;
  gid.raw = {0xfe, 0x80};
  const auto pid = static_cast<uint32_t>(getpid());
  for (size_t i = 0; i < 4; i++) gid.raw[8 + i] = static_cast<uint8_t>(pid >> (8 * i));
  gid.raw[15] = n;
  return gid;
}

uint32_t everybody() {
  return htonl(0x7fffffff);
}

// Waits until a message comes; a malformed message fails the test.
wire::Message wait_message(int fd, UdpPeer& from) {
  wire::Message message;
  struct pollfd ready = {fd, POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, static_cast<int>(kPatience / 1ms)), 1);
  EXPECT_EQ(udp_receive(fd, message, from), UdpResult::kMessage);
  return message;
}

void send_bytes(int fd, const UdpPeer& to, const std::vector<uint8_t>& bytes) {
  const auto address = socket_address(to.ip_be, to.port);
  ASSERT_EQ(sendto(fd, bytes.data(), bytes.size(), 0,
                   reinterpret_cast<const struct sockaddr*>(&address), sizeof address),
            static_cast<ssize_t>(bytes.size()));
}

std::vector<uint8_t> bytes_of(const wire::Message& message) {
  std::vector<uint8_t> bytes;
  EXPECT_TRUE(wire::encode(message, bytes));
  return bytes;
}

TEST(Subnet, OfOurAddresses) {
  const auto subnet = subnet_of(ip(1));
  ASSERT_TRUE(subnet);
  EXPECT_EQ(subnet->broadcast_be(), everybody());
  EXPECT_TRUE(subnet->holds(htonl(0x7f000001)));
  EXPECT_FALSE(subnet->holds(htonl(0x0a000001)));
  EXPECT_FALSE(subnet_of(htonl(0xc6336401)));  // 198.51.100.1, for documentation
}

// ---- The asking side, against strangers

class ResolverTest : public ::testing::Test {
 protected:
  ResolverTest() {
    EXPECT_TRUE(reactor_.start());
    stranger_ = udp_hear_all(everybody(), test_port());
    EXPECT_TRUE(stranger_);
    make(GidResolver::kAnswerTimeout);
  }
  void make(std::chrono::milliseconds answer_timeout) {
    reactor_.call_and_wait([&] {
      resolver_ = std::make_unique<GidResolver>(reactor_, secrets_, test_port(), answer_timeout);
    });
  }
  ~ResolverTest() override {
    reactor_.call_and_wait([&] { resolver_.reset(); });
  }
  std::future<bool> ask(const wire::Gid& gid) {
    auto promise = std::make_shared<std::promise<bool>>();
    reactor_.call_and_wait([&] {
      resolver_->ask(ip(1), gid, [promise](bool answered) { promise->set_value(answered); });
    });
    return promise->get_future();
  }
  std::optional<uint32_t> known(const wire::Gid& gid) {
    std::optional<uint32_t> found;
    reactor_.call_and_wait([&] { found = resolver_->known(ip(1), gid); });
    return found;
  }
  void doubt(const wire::Gid& gid) {
    reactor_.call_and_wait([&] { resolver_->doubt(ip(1), gid); });
  }
  wire::GidQuery hear(UdpPeer& asker) {
    const wire::Message message = wait_message(stranger_.get(), asker);
    const auto* query = std::get_if<wire::GidQuery>(&message);
    EXPECT_NE(query, nullptr);
    return query != nullptr ? *query : wire::GidQuery{};
  }
  void answer(const UdpPeer& asker, const wire::Message& message) {
    EXPECT_TRUE(udp_send(stranger_.get(), message, asker));
  }

  Reactor reactor_;
  const Secrets secrets_;
  UniqueFd stranger_;
  std::unique_ptr<GidResolver> resolver_;
};

TEST_F(ResolverTest, AnswerIsKnownAfterwards) {
  const wire::Gid gid = link_local(1);
  make(kPatience);
  EXPECT_EQ(known(gid), std::nullopt);
  auto asked = ask(gid);
  UdpPeer asker;
  const auto query = hear(asker);
  EXPECT_EQ(query.gid, gid);
  EXPECT_EQ(asker.ip_be, ip(1));
  answer(asker, wire::GidAnswer{query.nonce, gid, wire::Gid::from_ipv4(ip(9))});
  EXPECT_TRUE(asked.get());
  EXPECT_EQ(known(gid), ip(9));
  EXPECT_EQ(known(link_local(2)), std::nullopt);
}

TEST_F(ResolverTest, SilenceIsNoAnswer) {
  auto asked = ask(link_local(1));
  EXPECT_FALSE(asked.get());
  EXPECT_EQ(known(link_local(1)), std::nullopt);
}

TEST_F(ResolverTest, ManyWhoWantToKnowAreOneQuestion) {
  make(kPatience);
  std::vector<std::future<bool>> all;
  for (int i = 0; i < 100; i++) all.push_back(ask(link_local(1)));
  UdpPeer asker;
  const auto query = hear(asker);
  EXPECT_EQ(query.gid, link_local(1));
  // A second question for the first GID would come before the question for the other GID.
  (void)ask(link_local(2));
  UdpPeer other;
  EXPECT_EQ(hear(other).gid, link_local(2));
  answer(asker, wire::GidAnswer{query.nonce, query.gid, wire::Gid::from_ipv4(ip(9))});
  for (auto& one : all) EXPECT_TRUE(one.get());
}

TEST_F(ResolverTest, WhatDoesNotFitIsNoAnswer) {
  const wire::Gid gid = link_local(1);
  auto asked = ask(gid);
  UdpPeer asker;
  const auto query = hear(asker);
  const wire::Gid there = wire::Gid::from_ipv4(ip(9));
  const wire::GidAnswer good{query.nonce, gid, there};
  send_bytes(stranger_.get(), asker, {});
  send_bytes(stranger_.get(), asker, {'S', 'H', 'F', 'T'});
  const auto whole = bytes_of(good);
  for (size_t n = 0; n < whole.size(); n++)
    send_bytes(stranger_.get(), asker, {whole.begin(), whole.begin() + static_cast<long>(n)});
  auto longer = whole;
  longer.push_back(0);
  send_bytes(stranger_.get(), asker, longer);
  longer.resize(4000);
  send_bytes(stranger_.get(), asker, longer);
  answer(asker, query);
  answer(asker, wire::Close{});
  answer(asker, wire::GidAnswer{query.nonce + 1, gid, there});
  answer(asker, wire::GidAnswer{query.nonce, link_local(2), there});
  answer(asker, wire::GidAnswer{query.nonce, gid, link_local(3)});
  answer(asker, wire::GidAnswer{query.nonce, gid, wire::Gid{}});
  answer(asker, wire::GidAnswer{query.nonce, gid, wire::Gid::from_ipv4(htonl(0x0a000001))});
  EXPECT_FALSE(asked.get());
  EXPECT_EQ(known(gid), std::nullopt);
}

TEST_F(ResolverTest, RandomBytesAreNoAnswer) {
  const char* given = getenv("SHIFT_TEST_SEED");
  const auto seed = given != nullptr ? static_cast<uint32_t>(strtoul(given, nullptr, 10)) : 20u;
  printf("seed %u\n", seed);
  std::mt19937 random(seed);
  auto asked = ask(link_local(1));
  UdpPeer asker;
  const auto query = hear(asker);
  const auto whole =
      bytes_of(wire::GidAnswer{query.nonce, query.gid, wire::Gid::from_ipv4(htonl(0x0a000001))});
  for (int i = 0; i < 500; i++) {
    auto bytes = whole;
    bytes.resize(random() % 100, 7);
    for (int flips = 0; flips < 4 && !bytes.empty(); flips++)
      bytes[random() % std::min<size_t>(bytes.size(), 36)] = static_cast<uint8_t>(random());
    send_bytes(stranger_.get(), asker, bytes);
  }
  EXPECT_FALSE(asked.get());
}

TEST_F(ResolverTest, AnotherAnswerIsBetterThanADoubtedOne) {
  make(2s);  // the last round waits for the whole timeout
  const wire::Gid gid = link_local(1);
  const auto round = [&](const std::vector<uint32_t>& answers) {
    auto asked = ask(gid);
    UdpPeer asker;
    const auto query = hear(asker);
    for (uint32_t ip_be : answers)
      answer(asker, wire::GidAnswer{query.nonce, gid, wire::Gid::from_ipv4(ip_be)});
    EXPECT_TRUE(asked.get());
    return known(gid);
  };
  EXPECT_EQ(round({ip(9), ip(8)}), ip(9));
  doubt(gid);
  EXPECT_EQ(known(gid), std::nullopt);
  EXPECT_EQ(round({ip(9), ip(8)}), ip(8));
  doubt(gid);
  // The doubted answer is better than none.
  EXPECT_EQ(round({ip(9)}), ip(9));
}

TEST_F(ResolverTest, EndsWhileQuestionsAreOpen) {
  auto asked = ask(link_local(1));
  make(kPatience);
  EXPECT_THROW(asked.get(), std::future_error);  // the callback is gone, and was never called
}

// ---- The answering side

class AnswererTest : public ::testing::Test {
 protected:
  AnswererTest() {
    node_.serve(ip(2));
    name(ip(2), {link_local(1), link_local(2)});
    asker_ = udp_speak_to_all(ip(1));
    EXPECT_TRUE(asker_);
  }
  void name(uint32_t ip_be, const std::vector<wire::Gid>& gids) {
    node_.run([&] { node_.net->name_address(ip_be, gids); });
  }
  void ask(const wire::Message& message) {
    EXPECT_TRUE(udp_send(asker_.get(), message, {everybody(), test_port()}));
  }
  // Expects that the next answer is the answer to this query.
  void expect_answer(const wire::GidQuery& query, uint32_t ip_be) {
    UdpPeer from;
    const wire::Message got = wait_message(asker_.get(), from);
    EXPECT_TRUE(
        got == wire::Message(wire::GidAnswer{query.nonce, query.gid, wire::Gid::from_ipv4(ip_be)}));
  }

  Node node_;
  UniqueFd asker_;
};

TEST_F(AnswererTest, AnswersForItsOwnGids) {
  for (uint8_t n : {uint8_t{1}, uint8_t{2}}) {
    const wire::GidQuery query{77u + n, link_local(n)};
    ask(query);
    expect_answer(query, ip(2));
  }
}

TEST_F(AnswererTest, IsSilentForEverythingElse) {
  ask(wire::GidQuery{1, link_local(3)});
  ask(wire::GidQuery{2, wire::Gid{}});
  ask(wire::GidAnswer{3, link_local(1), wire::Gid::from_ipv4(ip(2))});
  ask(wire::Close{});
  const UdpPeer all{everybody(), test_port()};
  const auto whole = bytes_of(wire::GidQuery{4, link_local(1)});
  for (size_t n = 0; n < whole.size(); n++)
    send_bytes(asker_.get(), all, {whole.begin(), whole.begin() + static_cast<long>(n)});
  auto longer = whole;
  longer.resize(9000);
  send_bytes(asker_.get(), all, longer);
  // The answerer has heard all of that before this query, which is the first to get an answer.
  const wire::GidQuery good{5, link_local(1)};
  ask(good);
  expect_answer(good, ip(2));
}

TEST_F(AnswererTest, NamesFollowTheAddress) {
  name(ip(2), {link_local(4)});
  ask(wire::GidQuery{1, link_local(1)});
  const wire::GidQuery good{2, link_local(4)};
  ask(good);
  expect_answer(good, ip(2));
}

// ---- Both sides, in a search

class LinkSearchTest : public ::testing::Test {
 protected:
  LinkSearchTest() {
    serve(b_, ip(2), link_local(2));
    serve(a_, ip(1), link_local(1));
  }
  static void serve(Node& node, uint32_t ip_be, const wire::Gid& gid) {
    node.serve(ip_be);
    node.run([&] { node.net->name_address(ip_be, {gid}); });
  }
  std::future<Found> find_start(const wire::QpName& remote,
                                std::chrono::milliseconds patience = kPatience) {
    auto promise = std::make_shared<std::promise<Found>>();
    a_.run([&] {
      FindRequest request{remote, qp_a_, Reactor::Clock::now() + patience, ip(1)};
      a_.net->find_peer(request, [promise](PeerChannel* channel, FindError error) {
        promise->set_value({channel, error});
      });
    });
    return promise->get_future();
  }
  Found find(const wire::QpName& remote, std::chrono::milliseconds patience = kPatience) {
    return find_start(remote, patience).get();
  }

  Node a_{200ms}, b_{200ms};
  const wire::QpName qp_a_{link_local(1), 0x11}, qp_b_{link_local(2), 0x22};
};

TEST_F(LinkSearchTest, FindsTheOwnerOfAQp) {
  b_.notes.add_qp(qp_b_);
  const Found found = find(qp_b_);
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_EQ(real(found.channel).peer(), b_.net->instance());
  EXPECT_EQ(b_.notes.asked(), (Notes::Asked{{qp_b_, qp_a_}}));
}

// C11: the link says where the QP is that the asker names as its own, and that is another host.
TEST_F(LinkSearchTest, WhoIsNotWhereItsGidIsFindsNothing) {
  b_.notes.add_qp(qp_b_);
  Node other{200ms};
  other.serve(ip(3));
  auto promise = std::make_shared<std::promise<FindError>>();
  other.run([&] {
    FindRequest request{qp_b_, qp_a_, Reactor::Clock::now() + 1s, ip(3)};
    other.net->find_peer(request,
                         [promise](PeerChannel*, FindError error) { promise->set_value(error); });
  });
  EXPECT_EQ(promise->get_future().get(), FindError::kNoSuchQp);
  EXPECT_EQ(b_.notes.ups(), 0);
  EXPECT_EQ(find(qp_b_).error, FindError::kNone) << "the QP's owner itself";
}

// C11: nor over the channel that it has for a QP of its own.
TEST_F(LinkSearchTest, AChannelFindsNothingForAGidThatIsElsewhere) {
  b_.notes.add_qp(qp_b_);
  Node other{200ms};
  serve(other, ip(3), link_local(3));
  const auto find_as = [&](const wire::QpName& asker, std::chrono::milliseconds patience) {
    auto promise = std::make_shared<std::promise<FindError>>();
    other.run([&] {
      FindRequest request{qp_b_, asker, Reactor::Clock::now() + patience, ip(3)};
      other.net->find_peer(request,
                           [promise](PeerChannel*, FindError error) { promise->set_value(error); });
    });
    return promise->get_future().get();
  };
  ASSERT_EQ(find_as({link_local(3), 0x33}, kPatience), FindError::kNone);
  EXPECT_NE(find_as(qp_a_, 1s), FindError::kNone);
}

TEST_F(LinkSearchTest, NobodyAnswers) {
  EXPECT_EQ(find({link_local(9), 0x22}).error, FindError::kNoAnswer);
}

TEST_F(LinkSearchTest, DeadlineEndsAQuestion) {
  EXPECT_EQ(find({link_local(9), 0x22}, 1ms).channel, nullptr);
}

TEST_F(LinkSearchTest, FindsAnotherProcessOfTheHost) {
  Node member{200ms};
  serve(member, ip(2), link_local(2));
  member.notes.add_qp({link_local(2), 0x33});
  const Found found = find({link_local(2), 0x33});
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_EQ(real(found.channel).peer(), member.net->instance());
}

TEST_F(LinkSearchTest, FindsANeighbourOnOurOwnNic) {
  Node neighbour{200ms};
  serve(neighbour, ip(1), link_local(1));
  neighbour.notes.add_qp({link_local(1), 0x44});
  const Found found = find({link_local(1), 0x44});
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_EQ(real(found.channel).peer(), neighbour.net->instance());
}

TEST_F(LinkSearchTest, AnswerPassesOnWithThePort) {
  auto first = std::make_unique<Node>(200ms);
  Node second{200ms};
  serve(*first, ip(5), link_local(5));
  serve(second, ip(5), link_local(5));
  second.notes.add_qp({link_local(5), 0x55});
  first.reset();
  const Found found = find({link_local(5), 0x55});
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_EQ(real(found.channel).peer(), second.net->instance());
}

TEST_F(LinkSearchTest, WrongAnswerCostsTimeOnly) {
  // Another host claims the GID, and it is the only one at first.
  const wire::QpName wanted{link_local(6), 0x66};
  Node liar{200ms};
  serve(liar, ip(7), link_local(6));
  auto search = find_start(wanted);
  // When the wrong host has denied the other QP, the search has also tried the wrong host. It then
  // finds the owner in a later attempt.
  Node owner{200ms};
  const auto asked_it = [&] { return find({link_local(6), 0x67}, 100ms).error; };
  // A busy machine may take longer to get there.
  FindError answer = asked_it();
  for (int i = 0; i < 100 && answer != FindError::kNoSuchQp; i++) answer = asked_it();
  EXPECT_EQ(answer, FindError::kNoSuchQp);
  owner.notes.add_qp(wanted);
  serve(owner, ip(6), link_local(6));
  const Found found = search.get();
  ASSERT_EQ(found.error, FindError::kNone);
  EXPECT_EQ(real(found.channel).peer(), owner.net->instance());
}

}  // namespace
}  // namespace shift::net::test

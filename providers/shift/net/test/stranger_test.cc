// Tests strangers that connect to the port: whatever they send, they lose their connection, and the
// process serves its peers as before.
#include "net/test/stranger.h"

#include <random>
#include <thread>

namespace shift::net::test {
namespace {

class StrangerTest : public ::testing::Test {
 protected:
  StrangerTest() {
    node_.notes.add_qp(ours_);
    node_.serve(here_);
    EXPECT_TRUE(works()) << "serving";
    // The honest peer has its answer before the process has noted the connection.
    EXPECT_TRUE(node_.notes.wait([&] { return node_.notes.ups() == 1; }));
  }
  bool works() {
    Node honest;
    return honest.find(qp(ip(1), 1), ours_).error == FindError::kNone;
  }
  wire::Hello hello(unsigned number) { return hello_by(identity(number), from_, ours_); }
  bool greet(Stranger& stranger, unsigned number) {
    return stranger.greet(identity(number), from_, ours_);
  }

  const uint32_t here_ = ip(20);
  const wire::QpName ours_ = qp(here_, 7), from_ = qp(ip(66), 5);
  Node node_;
};

TEST_F(StrangerTest, OtherProtocolsAreHungUpOn) {
  const std::string http = "GET / HTTP/1.1\r\n\r\n";
  Stranger browser(here_);
  browser.say(std::vector<uint8_t>(http.begin(), http.end()));
  EXPECT_TRUE(browser.closed());
  Stranger short_one(here_);
  short_one.say(std::vector<uint8_t>{'S', 'S', 'H', '-', '2', '.', '0', '-', 'x', 'x', 'x', 'x'});
  EXPECT_TRUE(short_one.closed());
  EXPECT_TRUE(works());
}

TEST_F(StrangerTest, FirstMessageMustBeAHello) {
  Stranger s(here_);
  s.say(wire::Close{ours_, ours_});
  EXPECT_TRUE(s.closed());
  Stranger nobody(here_);
  wire::Hello nameless;
  nameless.want = nameless.from = ours_;
  nobody.say(nameless);
  EXPECT_TRUE(nobody.closed());
  // This message is valid, but too long for a first message: the process closes the connection
  // before it has read the whole message.
  Stranger talker(here_);
  talker.say(wire::KeyQuery{ours_, ours_, 0, 0, 0, std::vector<uint32_t>(200, 1)});
  EXPECT_TRUE(talker.closed());
  EXPECT_TRUE(works());
}

TEST_F(StrangerTest, RandomBytesAfterAValidHeader) {
  std::mt19937 random(7);
  for (int i = 0; i < 50; i++) {
    std::vector<uint8_t> bytes;
    ASSERT_TRUE(wire::encode(hello(9), bytes));
    // The length is that of a Hello, so the process reads the whole message, which is no Hello.
    bytes[5] = static_cast<uint8_t>(2 + random() % 10);
    for (size_t at = wire::kHeaderSize; at < bytes.size(); at++)
      bytes[at] = static_cast<uint8_t>(random());
    Stranger s(here_);
    s.say(bytes);
    EXPECT_TRUE(s.closed());
  }
  EXPECT_TRUE(works());
}

TEST_F(StrangerTest, UnknownQpsAndInstancesAreDenied) {
  Stranger s(here_);
  wire::Hello h = hello(9);
  h.want.qpn = 999;
  s.say(h);
  const auto answer = s.hear();
  ASSERT_NE(answer, nullptr);
  const auto& reply = std::get<wire::HelloReply>(*answer);
  EXPECT_EQ(reply.status, wire::HelloStatus::kNoSuchQp);
  EXPECT_TRUE(reply.instance.is_zero()) << "says nothing about itself";
  EXPECT_TRUE(s.closed());
  Stranger guesser(here_);
  wire::Hello g = hello(9);
  g.target = instance(33);
  guesser.say(g);
  const auto denial = guesser.hear();
  ASSERT_NE(denial, nullptr);
  EXPECT_EQ(std::get<wire::HelloReply>(*denial).status, wire::HelloStatus::kNoSuchQp);
}

// Whoever knows the names of two QPs, but does not come from the address of one of them, is told
// nothing: not the instance, which opens further connections, and not that there is such a QP.
TEST_F(StrangerTest, WhoComesFromAnotherAddressThanItsQpIsDenied) {
  Stranger s(here_);
  wire::Hello h = hello(9);
  h.from = qp(ip(1), 1);
  s.say(h);
  const auto answer = s.hear();
  ASSERT_NE(answer, nullptr);
  const auto& reply = std::get<wire::HelloReply>(*answer);
  EXPECT_EQ(reply.status, wire::HelloStatus::kNoSuchQp);
  EXPECT_TRUE(reply.instance.is_zero());
  EXPECT_TRUE(s.closed());
  EXPECT_TRUE(works());
}

// The same over a channel that exists: it leads to another address.
TEST_F(StrangerTest, AQuestionForAnotherAddressIsDenied) {
  Stranger s(here_);
  ASSERT_TRUE(greet(s, 9));
  wire::Hello h = hello(9);
  h.from = qp(ip(1), 1);
  s.say(h);
  const auto answer = s.hear();
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(std::get<wire::HelloReply>(*answer).status, wire::HelloStatus::kNoSuchQp);
}

TEST_F(StrangerTest, NonsenseOnAChannelEndsTheConnection) {
  const std::vector<std::function<void(Stranger&)>> sins = {
      [](Stranger& s) { s.say(std::vector<uint8_t>(64, 0xff)); },
      // The stranger uses the instance of another process.
      [&](Stranger& s) { s.say(hello(77)); },
      [&](Stranger& s) {
        wire::HelloReply reply;
        reply.instance = instance(77);
        s.say(reply);
      },
      [&](Stranger& s) {
        std::vector<uint8_t> bytes;
        ASSERT_TRUE(wire::encode(wire::Close{ours_, ours_}, bytes));
        bytes[8]++;  // one byte more than a Close has
        bytes.push_back(0);
        s.say(bytes);
      },
  };
  const int before = node_.notes.ups();
  uint8_t seed = 100;
  for (const auto& sin : sins) {
    Stranger s(here_);
    ASSERT_TRUE(greet(s, seed++));
    sin(s);
    EXPECT_TRUE(s.closed()) << "sin " << seed - 101;
  }
  EXPECT_EQ(node_.notes.ups() - before, static_cast<int>(sins.size()));
  EXPECT_TRUE(node_.notes.messages().empty());
  EXPECT_TRUE(works());
}

TEST_F(StrangerTest, UnaskedAnswersChangeNothing) {
  Stranger s(here_);
  ASSERT_TRUE(greet(s, 50));
  wire::HelloReply unasked;
  unasked.instance = instance(50);
  unasked.want = qp(ip(1), 2);
  unasked.from = qp(ip(20), 7);
  s.say(unasked);
  // The process still takes messages afterwards.
  const wire::Message last = wire::Close{ours_, ours_};
  s.say(last);
  EXPECT_TRUE(node_.notes.wait_message(last));
}

TEST_F(StrangerTest, AMessageIsTakenOnceAndNeverBehindANewerOne) {
  const auto numbered = [&](uint32_t n) { return wire::Members{ours_, ours_, n, 0}; };
  Stranger quick(here_), slow(here_);
  for (Stranger* s : {&quick, &slow}) {
    ASSERT_TRUE(greet(*s, 60));
  }
  for (uint32_t n : {2u, 4u}) {
    quick.sequence_set(n);
    quick.say(numbered(n));
    ASSERT_TRUE(node_.notes.wait_message(numbered(n)));
  }
  // The slow connection brings copies of 2 and 4; the message 3, which no other connection brings;
  // and the message 5 before the quick connection brings it.
  for (uint32_t n : {2u, 3u, 4u, 5u}) {
    slow.sequence_set(n);
    slow.say(numbered(n));
  }
  ASSERT_TRUE(node_.notes.wait_message(numbered(5)));
  for (uint32_t n : {5u, 6u}) {
    quick.sequence_set(n);
    quick.say(numbered(n));
  }
  ASSERT_TRUE(node_.notes.wait_message(numbered(6)));
  std::vector<wire::Message> taken;
  for (const auto& [channel, message] : node_.notes.messages()) taken.push_back(message);
  EXPECT_EQ(taken,
            (std::vector<wire::Message>{numbered(2), numbered(4), numbered(5), numbered(6)}));
  // Every message of a channel has a number.
  quick.sequence_set(0);
  quick.say(numbered(7));
  EXPECT_TRUE(quick.closed());
}

TEST_F(StrangerTest, AHelloMayComeByteByByte) {
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(wire::encode(hello(9), bytes));
  Stranger s(here_);
  for (const uint8_t byte : bytes) {
    s.say(std::vector<uint8_t>{byte});
    std::this_thread::sleep_for(1ms);
  }
  const auto answer = s.hear();
  ASSERT_NE(answer, nullptr);
  EXPECT_TRUE(std::holds_alternative<wire::HelloReply>(*answer));
}

TEST_F(StrangerTest, SilentCrowdIsTimedOutAndHonestPeersGetThrough) {
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (size_t i = 0; i < 74; i++)  // more than there are places
    crowd.push_back(std::make_unique<Stranger>(here_));
  EXPECT_TRUE(works()) << "behind the crowd";
  EXPECT_FALSE(crowd.back()->is_closed_now()) << "it was not the crowd's end that let it through";
  for (auto& s : crowd) EXPECT_TRUE(s->closed());
}

TEST_F(StrangerTest, SlowTalkersAreCutOffToo) {
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(wire::encode(hello(9), bytes));
  bytes.pop_back();
  Stranger s(here_);
  s.say(bytes);
  EXPECT_TRUE(s.closed());
}

}  // namespace
}  // namespace shift::net::test

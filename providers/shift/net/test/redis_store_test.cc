// Tests the store against a server that does what a test says: lies, silence, restarts, crowds.
#include "net/redis_store.h"

#include <sys/resource.h>

#include <algorithm>

#include "net/host_entry.h"
#include "net/test/fake_redis.h"
#include "net/test/redis_fixture.h"

namespace shift::net::test {
namespace {

const Ips kIps = {ip_of("10.0.0.1"), ip_of("10.0.0.2")};
const std::string kLine = "1 10.0.0.1 10.0.0.2";
const std::string kKey1 = "shift:gid:fe800000000000000000000000000001";
const std::string kKey2 = "shift:gid:fe800000000000000000000000000002";
const Answered kAway = {{}, Outcome::kAway};
const Answered kUnknown = {{}, Outcome::kUnknown};
const Answered kFound = {kIps, Outcome::kFound};

class Store : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!redis_is_built()) GTEST_SKIP() << "this build has no hiredis";
  }
  void wait_for_line(const std::string& key, const std::string& line) {
    wait_for([&] {
      const auto entries = fake_.entries(key);
      return entries.size() == 1 && entries.begin()->first == line;
    });
  }
  void wait_for_none(const std::string& key) {
    wait_for([&] { return fake_.entries(key).empty(); });
  }

  FakeRedis fake_;
};

TEST(StoreWithoutHiredis, IsAway) {
  if (redis_is_built()) GTEST_SKIP() << "this build has hiredis";
  FakeRedis fake;
  StoreNode node(local_server(fake.port()));
  node.announce({gid_of(1)}, kIps);
  EXPECT_EQ(node.ask(gid_of(1)), kAway);
  EXPECT_EQ(fake.clients(), 0u);
}

TEST_F(Store, OneHostFindsWhatAnotherAnnounces) {
  StoreNode one(local_server(fake_.port())), other(local_server(fake_.port()));
  EXPECT_EQ(other.ask(gid_of(1)), kUnknown);
  one.announce({gid_of(1), gid_of(2), gid_of(1)}, {kIps[1], kIps[0]});
  other.expect(gid_of(1), kFound);
  other.expect(gid_of(2), kFound);
  EXPECT_EQ(other.ask(gid_of(3)), kUnknown);
  EXPECT_EQ(fake_.entries(kKey1).begin()->first, kLine);
  EXPECT_GE(fake_.count("EXPIRE"), 2u);
  EXPECT_EQ(fake_.clients(), 2u);
}

TEST_F(Store, AQuestionBeforeTheConnectionIsUpIsAnswered) {
  fake_.put(kKey1, kLine, 1);
  StoreNode node(local_server(fake_.port()));
  EXPECT_EQ(node.ask(gid_of(1)), kFound);
}

TEST_F(Store, AnAnswerNeverComesFromInsideTheQuestion) {
  StoreNode node(local_server(fake_.port()));
  for (const bool is_away : {false, true}) {
    if (is_away) {
      fake_.stop();
      node.expect(gid_of(1), kAway);
    }
    std::promise<bool> inside;
    node.run([&] {
      const auto is_inside = std::make_shared<bool>(true);
      node.store().ask(gid_of(1), [&, is_inside](Ips, Outcome) { inside.set_value(*is_inside); });
      *is_inside = false;
    });
    EXPECT_FALSE(inside.get_future().get());
  }
}

TEST_F(Store, AnsweringMayAskAgain) {
  StoreNode node(local_server(fake_.port()));
  std::promise<Outcome> second;
  node.run([&] {
    node.store().ask(gid_of(1), [&](Ips, Outcome) {
      node.store().announce({gid_of(1)}, kIps);
      node.store().ask(gid_of(2), [&](Ips, Outcome outcome) { second.set_value(outcome); });
    });
  });
  EXPECT_EQ(second.get_future().get(), Outcome::kUnknown);
}

TEST_F(Store, ChangedAddressesAndGidsTakeThePlaceOfTheOldOnes) {
  StoreNode node(local_server(fake_.port()));
  node.announce({gid_of(1), gid_of(2)}, kIps);
  wait_for_line(kKey1, kLine);
  wait_for_line(kKey2, kLine);
  node.announce({gid_of(1)}, {kIps[0]});
  wait_for_line(kKey1, "1 10.0.0.1");
  wait_for_none(kKey2);
  node.announce({gid_of(1)}, {});
  wait_for_none(kKey1);
}

TEST_F(Store, SavesTheNameThatTheSettingGives) {
  RedisServer server = local_server(fake_.port());
  server.prefix = "east";
  StoreNode node(server);
  node.announce({gid_of(1)}, kIps);
  wait_for_line("east:gid:fe800000000000000000000000000001", kLine);
  node.expect(gid_of(1), kFound);
}

// Containers may share a GID and not their addresses; link-local GIDs may exist twice.
TEST_F(Store, HostsThatShareAGidStandBesideEachOther) {
  StoreNode one(local_server(fake_.port())), two(local_server(fake_.port())),
      reader(local_server(fake_.port()));
  one.announce({gid_of(1)}, {kIps[0]});
  two.announce({gid_of(1)}, {kIps[1]});
  wait_for([&] {
    const Ips ips = reader.ask(gid_of(1)).ips;
    return ips.size() == 2 && std::ranges::is_permutation(ips, kIps);
  });
  const auto refreshed = fake_.count("ZADD") + 6;
  wait_for([&] { return fake_.count("ZADD") >= refreshed; });
  EXPECT_EQ(fake_.entries(kKey1).size(), 2u);
}

TEST_F(Store, TheLatestWritersComeFirstAndOldOnesAreLeftOut) {
  fake_.put(kKey1, "1 10.0.0.1", 1);
  fake_.put(kKey1, "1 10.0.0.2", 2);
  fake_.put(kKey1, "1 10.0.0.3 10.0.0.2", 3);
  fake_.put(kKey1, "1 10.0.0.4", 4);
  fake_.put(kKey1, "1 10.0.0.5", 5);
  StoreNode node(local_server(fake_.port()));
  EXPECT_EQ(node.ask(gid_of(1)),
            (Answered{{ip_of("10.0.0.5"), ip_of("10.0.0.4"), ip_of("10.0.0.3"), ip_of("10.0.0.2")},
                      Outcome::kFound}));
}

TEST_F(Store, LinesThatNobodyRefreshesGoWhileTheirKeyLives) {
  fake_.put(kKey1, "1 10.9.9.9", 1);
  StoreNode node(local_server(fake_.port()));
  node.announce({gid_of(1)}, kIps);
  wait_for_line(kKey1, kLine);
}

TEST_F(Store, AServerThatComesBackEmptyIsFilledAgain) {
  StoreNode node(local_server(fake_.port()));
  node.announce({gid_of(1)}, kIps);
  wait_for_line(kKey1, kLine);
  fake_.stop();
  fake_.clear_data();
  node.expect(gid_of(1), kAway);
  fake_.start();
  wait_for_line(kKey1, kLine);
  node.expect(gid_of(1), kFound);
  fake_.clear_data();  // FLUSHALL is seen at the next refreshment
  wait_for_line(kKey1, kLine);
}

TEST_F(Store, QuestionsUnderWayEndWithTheConnection) {
  RedisOptions options = quick();
  options.refresh = 1h;  // its reply would be taken for that of a question, of which none comes
  StoreNode node(local_server(fake_.port()), options);
  node.expect(gid_of(1), kUnknown);
  fake_.set_script([](const Words& words) -> std::optional<std::string> {
    if (words[0] == "ZREVRANGE") return "";
    return std::nullopt;
  });
  std::vector<std::future<Answered>> asked;
  for (int i = 0; i < 10; i++) asked.push_back(node.ask_soon(gid_of(1)));
  fake_.stop();
  for (auto& one : asked) EXPECT_EQ(one.get(), kAway);
}

TEST_F(Store, WithoutAServerTheAnswerIsAtOnce) {
  fake_.stop();
  RedisOptions options = quick();
  options.retry_min = options.retry_max = 1h;
  options.ask = 1h;
  StoreNode node(local_server(fake_.port()), options);
  EXPECT_EQ(node.ask(gid_of(1)), kAway);  // when the first attempt has failed
  for (int i = 0; i < 100; i++) EXPECT_EQ(node.ask(gid_of(1)), kAway);
}

TEST_F(Store, PausesBetweenAttemptsGrow) {
  fake_.set_greeting("nonsense\r\n");
  RedisOptions options = quick();
  options.retry_min = 1ms;
  options.retry_max = 1h;
  const auto start = std::chrono::steady_clock::now();
  StoreNode node(local_server(fake_.port()), options);
  wait_for([&] { return fake_.clients() >= 10; });
  // Nine pauses, each of three quarters at least: 1 + 2 + ... + 256 ms.
  EXPECT_GE(std::chrono::steady_clock::now() - start, 511ms * 3 / 4);
}

TEST_F(Store, ASilentServerIsLateAndThenAway) {
  fake_.set_script([](const Words&) { return std::string(); });
  RedisOptions options = quick();
  options.ask = 20ms;
  options.patience = 200ms;
  StoreNode node(local_server(fake_.port()), options);
  EXPECT_EQ(node.ask(gid_of(1)), kAway);
  wait_for([&] { return fake_.clients() >= 3; });  // each connection was given up
  fake_.set_script({});
  node.expect(gid_of(1), kUnknown);
}

TEST_F(Store, AServerThatFallsSilentIsGivenUp) {
  RedisOptions options = quick();
  options.ask = 20ms;
  options.patience = 200ms;
  StoreNode node(local_server(fake_.port()), options);
  node.expect(gid_of(1), kUnknown);
  fake_.set_script([](const Words&) { return std::string(); });
  EXPECT_EQ(node.ask(gid_of(1)), kAway);
  wait_for([&] { return fake_.clients() >= 2; });
}

TEST_F(Store, RepliesMayComeByteAfterByte) {
  fake_.put(kKey1, kLine, 1);
  fake_.set_piece(1);
  StoreNode node(local_server(fake_.port()));
  for (int i = 0; i < 20; i++) EXPECT_EQ(node.ask(gid_of(1)), kFound);
  EXPECT_EQ(fake_.clients(), 1u);
}

TEST_F(Store, LiesChangeNothing) {
  const Words lies[] = {
      {"1 224.0.0.1"},          {"1 127.0.0.1"}, {"1 0.0.0.0"}, {"10.0.0.1"}, {"1"}, {""},
      {std::string(4096, '1')}, {"2 10.0.0.1"},
  };
  StoreNode node(local_server(fake_.port()));
  node.announce({gid_of(9)}, kIps);  // so that this host has no loopback addresses
  node.expect(gid_of(9), kFound);
  for (const Words& lie : lies) {
    for (const bool beside_truth : {false, true}) {
      Words said = lie;
      if (beside_truth) said.push_back(kLine);
      fake_.set_script([said](const Words& words) -> std::optional<std::string> {
        if (words[0] == "ZREVRANGE") return list(said);
        return std::nullopt;
      });
      EXPECT_EQ(node.ask(gid_of(1)), beside_truth ? kFound : kUnknown) << lie[0].substr(0, 50);
    }
  }
  EXPECT_EQ(fake_.clients(), 1u);
}

TEST_F(Store, OtherKindsOfRepliesAreNoAddresses) {
  StoreNode node(local_server(fake_.port()));
  const std::pair<const char*, Answered> cases[] = {
      {"+OK\r\n", kUnknown},
      {":7\r\n", kUnknown},
      {"$-1\r\n", kUnknown},
      {"$10\r\n1 10.0.0.1\r\n", kUnknown},
      {"-WRONGTYPE Operation against a key\r\n", kUnknown},
      {"-NOPERM this user has no permissions\r\n", kAway},
      {"-LOADING Redis is loading the dataset in memory\r\n", kAway},
  };
  for (const auto& [reply, wanted] : cases) {
    fake_.set_script([reply = reply](const Words& words) -> std::optional<std::string> {
      if (words[0] == "ZREVRANGE") return reply;
      return std::nullopt;
    });
    EXPECT_EQ(node.ask(gid_of(1)), wanted) << reply;
  }
  EXPECT_EQ(fake_.clients(), 1u);
}

TEST_F(Store, NonsenseEndsTheConnectionAndItComesBack) {
  const std::string cases[] = {"HTTP/1.1 400\r\n", "*1000\r\n", "*1\r\n*1\r\n",
                               ":1\r\n:2\r\n:3\r\n", "$1000000000\r\n" + std::string(100000, 'x')};
  for (const std::string& nonsense : cases) {
    FakeRedis fake;
    StoreNode node(local_server(fake.port()));
    node.expect(gid_of(1), kUnknown);
    const auto lies_left = std::make_shared<std::atomic<int>>(1);
    fake.set_script([&, lies_left](const Words& words) -> std::optional<std::string> {
      if (words[0] == "ZREVRANGE" && (*lies_left)-- > 0) return nonsense;
      return std::nullopt;
    });
    node.ask(gid_of(1));
    node.expect(gid_of(1), kUnknown);
    wait_for([&] { return fake.clients() >= 2; });
  }
}

TEST_F(Store, ATimeThatIsNoneEndsTheConnection) {
  for (const char* lie :
       {"+OK\r\n", "*0\r\n", "*2\r\n$1\r\nx\r\n$1\r\n0\r\n", "*2\r\n$2\r\n-5\r\n$1\r\n0\r\n",
        "*2\r\n$1\r\n0\r\n$1\r\n0\r\n", "*2\r\n$20\r\n99999999999999999999\r\n$1\r\n0\r\n"}) {
    FakeRedis fake;
    fake.set_script([lie](const Words& words) -> std::optional<std::string> {
      if (words[0] == "TIME") return lie;
      return std::nullopt;
    });
    StoreNode node(local_server(fake.port()));
    node.announce({gid_of(1)}, kIps);
    wait_for([&] { return fake.clients() >= 2; });
    EXPECT_EQ(fake.count("ZADD"), 0u) << lie;
  }
}

TEST_F(Store, AnEndlessReplyFillsNoMemory) {
  for (const char* start : {"", "$1000000000\r\n", "*2\r\n$1\r\nx\r\n$1000000000\r\n"}) {
    FakeRedis fake;
    fake.set_greeting(start);
    fake.set_flood(std::string(65536, 'x'));
    RedisOptions options = quick();
    options.retry_min = options.retry_max = 1h;  // one connection only
    StoreNode node(local_server(fake.port()), options);
    EXPECT_EQ(node.ask(gid_of(1)), kAway);
    // What the kernel holds of it is all that was taken.
    EXPECT_LT(fake.flooded(), FakeRedis::kFloodMax / 8);
  }
}

TEST_F(Store, TenThousandQuestionsGoOverOneConnection) {
  fake_.put(kKey1, kLine, 1);
  StoreNode node(local_server(fake_.port()));
  constexpr int kCount = 10000;
  std::atomic<int> found = 0, others = 0;
  std::promise<void> over;
  node.run([&] {
    for (int i = 0; i < kCount; i++)
      node.store().ask(gid_of(1), [&](Ips ips, Outcome outcome) {
        (outcome == Outcome::kFound && ips == kIps ? found : others)++;
        if (found + others == kCount) over.set_value();
      });
  });
  over.get_future().wait();
  EXPECT_EQ(found, kCount);
  EXPECT_EQ(fake_.clients(), 1u);
  EXPECT_EQ(fake_.count("ZREVRANGE"), static_cast<size_t>(kCount));
}

TEST_F(Store, WhatWaitsIsBounded) {
  fake_.set_script([](const Words& words) -> std::optional<std::string> {
    if (words[0] == "ZREVRANGE") return "";
    return std::nullopt;
  });
  RedisOptions options = quick();
  options.ask = 2s;
  options.refresh = 1h;  // its reply would be taken for that of a question, of which none comes
  StoreNode node(local_server(fake_.port()), options);
  constexpr size_t kTooMany = 1000;
  std::atomic<size_t> early = 0, all = 0;
  std::promise<void> over;
  node.run([&] {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < RedisStore::kAsksMax + kTooMany; i++)
      node.store().ask(gid_of(1), [&, start, options](Ips, Outcome outcome) {
        EXPECT_EQ(outcome, Outcome::kAway);
        early += std::chrono::steady_clock::now() - start < options.ask;
        if (++all == RedisStore::kAsksMax + kTooMany) over.set_value();
      });
  });
  over.get_future().wait();
  EXPECT_EQ(early, kTooMany);
}

TEST_F(Store, AHostAnnouncesABoundedNumberOfGids) {
  StoreNode node(local_server(fake_.port()));
  std::vector<wire::Gid> gids(RedisStore::kGidsMax + 10);
  for (size_t i = 0; i < gids.size(); i++) {
    gids[i].raw[0] = static_cast<uint8_t>(i >> 8);
    gids[i].raw[1] = static_cast<uint8_t>(i);
  }
  node.announce(gids, kIps);
  wait_for_line(host_entry_key("shift", gids[RedisStore::kGidsMax - 1]), kLine);
  EXPECT_TRUE(fake_.entries(host_entry_key("shift", gids[RedisStore::kGidsMax])).empty());
}

TEST_F(Store, APasswordIsSentFirstAndARefusalEndsTheConnection) {
  std::mutex mutex;
  std::vector<Words> said;
  fake_.set_script([&](const Words& words) -> std::optional<std::string> {
    std::lock_guard lock(mutex);
    said.push_back(words);
    if (words[0] == "AUTH" && words.back() != "good") return "-WRONGPASS invalid hush\r\n";
    return std::nullopt;
  });
  RedisServer server = local_server(fake_.port());
  server.password = "good";
  {
    StoreNode node(server);
    node.expect(gid_of(1), kUnknown);
    std::lock_guard lock(mutex);
    EXPECT_EQ(said[0], (Words{"AUTH", "good"}));
    said.clear();
  }
  server.user = "shift";
  server.password = "bad";
  StoreNode node(server);
  node.announce({gid_of(1)}, kIps);
  node.expect(gid_of(1), kAway);
  wait_for([&] { return fake_.clients() >= 4; });
  std::lock_guard lock(mutex);
  EXPECT_EQ(said[0], (Words{"AUTH", "shift", "bad"}));
  EXPECT_TRUE(std::ranges::none_of(said, [](const Words& one) { return one[0][0] == 'Z'; }));
}

TEST_F(Store, AReplicaIsLeftAndTheNameAskedAgain) {
  fake_.set_script([](const Words& words) -> std::optional<std::string> {
    if (words[0] == "ZADD") return "-READONLY You can't write against a read only replica.\r\n";
    return std::nullopt;
  });
  RedisServer server = local_server(fake_.port());
  server.host = "localhost";
  StoreNode node(server);
  node.announce({gid_of(1)}, kIps);
  wait_for([&] { return fake_.clients() >= 3; });
  fake_.set_script({});
  wait_for_line(kKey1, kLine);
}

TEST_F(Store, RefusedWritesDoNotEndTheConnection) {
  fake_.set_script([](const Words& words) -> std::optional<std::string> {
    if (words[0] == "ZADD") return "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    return std::nullopt;
  });
  fake_.put(kKey2, kLine, 1);
  StoreNode node(local_server(fake_.port()));
  node.announce({gid_of(1)}, kIps);
  wait_for([&] { return fake_.count("ZADD") >= 3; });
  EXPECT_EQ(node.ask(gid_of(2)), kFound);
  EXPECT_EQ(fake_.clients(), 1u);
}

TEST_F(Store, TellsTheAddressThatLeadsToTheServer) {
  StoreNode node(local_server(fake_.port()));
  EXPECT_EQ(node.told_address(), ip_of("127.0.0.1"));
  fake_.stop();
  node.expect(gid_of(1), kAway);
  EXPECT_EQ(node.address(), ip_of("127.0.0.1"));
  fake_.start();
  node.expect(gid_of(1), kUnknown);  // being told again would end the test
}

// An emulated host has such addresses only. Another one would lead who reads it to itself.
TEST_F(Store, LoopbackAddressesAreForEmulatedHostsOnly) {
  StoreNode node(local_server(fake_.port()));
  node.announce({gid_of(1)}, {ip_of("127.0.0.1"), ip_of("10.0.0.1")});
  wait_for_line(kKey1, "1 10.0.0.1");
  fake_.put(kKey2, "1 127.1.1.1", 1);
  EXPECT_EQ(node.ask(gid_of(2)), kUnknown);
  node.announce({gid_of(1)}, {ip_of("127.0.0.2"), ip_of("127.0.0.1")});
  wait_for_line(kKey1, "1 127.0.0.1 127.0.0.2");
  EXPECT_EQ(node.ask(gid_of(2)), (Answered{{ip_of("127.1.1.1")}, Outcome::kFound}));
}

TEST_F(Store, AnUnknownNameIsAServerThatIsAway) {
  RedisServer server = local_server(fake_.port());
  server.host = "no..host";
  StoreNode node(server);
  EXPECT_EQ(node.ask(gid_of(1)), kAway);
}

TEST_F(Store, MayEndAtAnyMoment) {
  for (const char* host : {"127.0.0.1", "localhost", "no..host"})
    for (int i = 0; i < 20; i++) {
      RedisServer server = local_server(fake_.port());
      server.host = host;
      StoreNode node(server);
      node.announce({gid_of(1)}, kIps);
      node.run([&] {
        for (int k = 0; k < 10; k++) node.store().ask(gid_of(1), [](Ips, Outcome) {});
      });
      if (i % 2 != 0 && host[0] == '1') node.ask(gid_of(1));
    }
}

TEST_F(Store, TlsIsNeverLeftOutWhenThePluginIsMissing) {
  RedisServer server = local_server(fake_.port());
  server.tls = true;
  RedisOptions options = quick();
  options.tls_plugin = "/no/such/libshift-tls.so";
  StoreNode node(server, options);
  node.announce({gid_of(1)}, kIps);
  for (int i = 0; i < 3; i++) EXPECT_EQ(node.ask(gid_of(1)), kAway);
  EXPECT_EQ(fake_.clients(), 0u);
}

}  // namespace
}  // namespace shift::net::test

// Tests the store with Debian's redis-server: restarts, expiry, passwords, rights, TLS.
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "net/host_entry.h"
#include "net/test/real_redis.h"
#include "net/test/redis_fixture.h"

#ifndef SHIFT_TLS_PLUGIN
#define SHIFT_TLS_PLUGIN ""
#endif

namespace shift::net::test {
namespace {

const Ips kIps = {ip_of("10.0.0.1"), ip_of("10.0.0.2")};
const std::string kKey1 = "shift:gid:fe800000000000000000000000000001";
const Answered kAway = {{}, Outcome::kAway};
const Answered kUnknown = {{}, Outcome::kUnknown};
const Answered kFound = {kIps, Outcome::kFound};

// Ten thousand questions at one time are answered rightly.
void expect_many_answers(StoreNode& node) {
  constexpr int kCount = 10000;
  std::atomic<int> found = 0, all = 0;
  std::promise<void> over;
  node.run([&] {
    for (int i = 0; i < kCount; i++)
      node.store().ask(gid_of(1), [&](Ips ips, Outcome) {
        found += ips == kIps;
        if (++all == kCount) over.set_value();
      });
  });
  over.get_future().wait();
  EXPECT_EQ(found, kCount);
}

class RedisServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!redis_is_built()) GTEST_SKIP() << "this build has no hiredis";
    if (!RealRedis::is_here()) GTEST_SKIP() << "redis-server, redis-cli or openssl is not here";
  }
};

TEST_F(RedisServerTest, HostsFindEachOther) {
  RealRedis redis;
  StoreNode one(local_server(redis.port())), other(local_server(redis.port()));
  EXPECT_EQ(one.ask(gid_of(2)), kUnknown);
  one.announce({gid_of(1)}, kIps);
  other.announce({gid_of(2)}, {kIps[1]});
  other.expect(gid_of(1), kFound);
  one.expect(gid_of(2), {{kIps[1]}, Outcome::kFound});
  EXPECT_EQ(redis.ask("zrange " + kKey1 + " 0 -1"), "1 10.0.0.1 10.0.0.2\n");
  const int left_s = atoi(redis.ask("ttl " + kKey1).c_str());
  EXPECT_GT(left_s, 0);
  EXPECT_LE(left_s, 180);
}

TEST_F(RedisServerTest, TheLatestWriterComesFirst) {
  RealRedis redis;
  redis.ask("zadd " + kKey1 +
            " 7 '1 10.0.0.7' 9 '1 10.0.0.9' 8 '1 10.0.0.8' 5 '1 10.0.0.5' 6 '1 10.0.0.6'");
  StoreNode node(local_server(redis.port()));
  EXPECT_EQ(node.ask(gid_of(1)),
            (Answered{{ip_of("10.0.0.9"), ip_of("10.0.0.8"), ip_of("10.0.0.7"), ip_of("10.0.0.6")},
                      Outcome::kFound}));
}

TEST_F(RedisServerTest, WhatNobodyRefreshesExpires) {
  RealRedis redis;
  RedisOptions options = quick();
  options.expiry = 1s;
  StoreNode reader(local_server(redis.port()), options);
  {
    StoreNode gone(local_server(redis.port()), options);
    gone.announce({gid_of(1)}, kIps);
    // It is refreshed all the time, so it outlives its expiry.
    const auto until = std::chrono::steady_clock::now() + 2500ms;
    reader.expect(gid_of(1), kFound);
    while (std::chrono::steady_clock::now() < until) ASSERT_EQ(reader.ask(gid_of(1)), kFound);
  }
  reader.expect(gid_of(1), kUnknown);
}

// A container that is gone shares its GIDs with the host, which keeps their key alive.
TEST_F(RedisServerTest, ALineExpiresWhileItsKeyLivesOn) {
  RealRedis redis;
  RedisOptions options = quick();
  options.expiry = 1s;
  StoreNode host(local_server(redis.port()), options);
  host.announce({gid_of(1)}, {kIps[0]});
  {
    StoreNode container(local_server(redis.port()), options);
    container.announce({gid_of(1)}, {kIps[1]});
    wait_for([&] { return host.ask(gid_of(1)).ips.size() == 2; });
  }
  host.expect(gid_of(1), {{kIps[0]}, Outcome::kFound});
}

TEST_F(RedisServerTest, AServerThatComesBackEmptyIsFilledAgain) {
  RealRedis redis;
  StoreNode node(local_server(redis.port()));
  node.announce({gid_of(1)}, kIps);
  node.expect(gid_of(1), kFound);
  redis.stop();
  node.expect(gid_of(1), kAway);
  redis.start();
  node.expect(gid_of(1), kFound);
  redis.ask("flushall");
  node.expect(gid_of(1), kFound);
}

TEST_F(RedisServerTest, AServerThatHangsIsGivenUpAndTakenBack) {
  RealRedis redis;
  RedisOptions options = quick();
  options.ask = 50ms;
  options.patience = 200ms;
  StoreNode node(local_server(redis.port()), options);
  node.announce({gid_of(1)}, kIps);
  node.expect(gid_of(1), kFound);
  redis.signal(SIGSTOP);
  node.expect(gid_of(1), kAway);
  redis.signal(SIGCONT);
  node.expect(gid_of(1), kFound);
}

TEST_F(RedisServerTest, APasswordOpensIt) {
  RealRedis redis({"--requirepass", "good one"});
  RedisServer server = local_server(redis.port());
  for (const char* wrong : {"", "bad"}) {
    server.password = wrong;
    StoreNode node(server);
    node.announce({gid_of(1)}, kIps);
    EXPECT_EQ(node.ask(gid_of(1)), kAway);
  }
  server.password = "good one";
  StoreNode node(server);
  EXPECT_EQ(node.ask(gid_of(1)), kUnknown);
  node.announce({gid_of(1)}, kIps);
  node.expect(gid_of(1), kFound);
}

// The rights that docs/security.md names are enough, and are all that is used.
TEST_F(RedisServerTest, AUserNeedsFewRights) {
  RealRedis redis;
  redis.ask(
      "acl setuser shift on '>hush' '~shift:gid:*' +time +zadd +zrem +zremrangebyscore "
      "+zrevrange +expire");
  redis.ask("acl setuser default off");
  RedisServer server = local_server(redis.port());
  server.user = "shift";
  server.password = "hush";
  StoreNode node(server);
  node.announce({gid_of(1)}, {kIps[0]});
  node.announce({gid_of(1)}, kIps);
  node.expect(gid_of(1), kFound);
  server.prefix = "other";
  StoreNode other(server);
  other.announce({gid_of(1)}, kIps);
  EXPECT_EQ(other.ask(gid_of(1)), kAway);
}

TEST_F(RedisServerTest, AKeyOfAnotherTypeIsNoHarm) {
  RealRedis redis;
  redis.ask("set " + kKey1 + " '1 10.0.0.9'");
  StoreNode node(local_server(redis.port()));
  node.announce({gid_of(1), gid_of(2)}, kIps);
  node.expect(gid_of(2), kFound);
  EXPECT_EQ(node.ask(gid_of(1)), kUnknown);
  redis.ask("del " + kKey1);
  node.expect(gid_of(1), kFound);
}

TEST_F(RedisServerTest, AServerWithoutAPlaceIsAway) {
  RealRedis redis({"--maxclients", "1"});
  StoreNode first(local_server(redis.port()));
  first.expect(gid_of(1), kUnknown);
  StoreNode second(local_server(redis.port()));
  EXPECT_EQ(second.ask(gid_of(1)), kAway);
  EXPECT_EQ(first.ask(gid_of(1)), kUnknown);
}

TEST_F(RedisServerTest, TenThousandQuestionsAreAnswered) {
  RealRedis redis;
  StoreNode node(local_server(redis.port()));
  node.announce({gid_of(1)}, kIps);
  node.expect(gid_of(1), kFound);
  expect_many_answers(node);
}

// Certificates of two authorities, made by openssl.
class RedisTls : public RedisServerTest {
 protected:
  void SetUp() override {
    RedisServerTest::SetUp();
    if (IsSkipped()) return;
    if (std::string(SHIFT_TLS_PLUGIN).empty()) GTEST_SKIP() << "this build has no OpenSSL";
    authority("good");
    authority("other");
    certificate("server", "good", "IP:127.0.0.1,DNS:localhost");
    certificate("stranger", "other", "IP:127.0.0.1,DNS:localhost");
    certificate("elsewhere", "good", "IP:127.0.0.2,DNS:elsewhere,DNS:*.localhost");
    certificate("outdated", "good", "IP:127.0.0.1,DNS:localhost", "-not_after 20200102000000Z");
  }
  void authority(const std::string& name) {
    shell(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=" +
        name + " -keyout " + file(name + ".key") + " -out " + file(name + ".pem"));
  }
  void certificate(const std::string& name, const std::string& by, const std::string& names,
                   const std::string& dates = "-days 2") {
    shell(
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
        " -keyout " +
        file(name + ".key") + " -out " + file(name + ".csr"));
    const bool is_past = dates.find("-days") == std::string::npos;
    const std::string extensions = file(name + ".ext");
    shell("echo subjectAltName=" + names + " > " + extensions);
    // Only `openssl ca` of OpenSSL 3.0 makes certificates of the past.
    if (is_past)
      shell(
          "cd " + folder_.path() +
          " && touch index.txt && printf '[ca]\\ndefault_ca=c\\n[c]\\n"
          "database=index.txt\\nnew_certs_dir=.\\nrand_serial=yes\\ndefault_md=sha256\\n"
          "policy=p\\n[p]\\ncommonName=supplied\\n' > ca.conf && openssl ca -batch -config ca.conf "
          "-cert " +
          by + ".pem -keyfile " + by + ".key -in " + name + ".csr -out " + name + ".pem -extfile " +
          extensions + " -startdate 20200101000000Z -enddate 20200102000000Z");
    else
      shell("openssl x509 -req " + dates + " -in " + file(name + ".csr") + " -CA " +
            file(by + ".pem") + " -CAkey " + file(by + ".key") + " -CAcreateserial -extfile " +
            extensions + " -out " + file(name + ".pem"));
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  std::vector<std::string> options(const std::string& certificate) const {
    return {"--tls-cert-file",    file(certificate + ".pem"),
            "--tls-key-file",     file(certificate + ".key"),
            "--tls-ca-cert-file", file("good.pem"),
            "--tls-auth-clients", "no"};
  }
  RedisServer server(const RealRedis& redis, const char* host = "127.0.0.1") const {
    RedisServer made = local_server(redis.port());
    made.host = host;
    made.tls = true;
    made.ca_file = file("good.pem");
    return made;
  }
  static RedisOptions times() {
    RedisOptions options = quick();
    options.tls_plugin = SHIFT_TLS_PLUGIN;
    return options;
  }
  // The server is away, for that reason, and nothing was kept there.
  void expect_away(const RedisServer& server, const std::string& why) {
    RedisOptions options = times();
    options.patience = 1s;  // some servers wait for ever
    StoreNode node(server, options);
    node.announce({gid_of(1)}, kIps);
    for (int i = 0; i < 3; i++) EXPECT_EQ(node.ask(gid_of(1)), kAway);
    EXPECT_NE(node.problem().find(why), std::string::npos) << node.problem();
  }

  const TemporaryFolder folder_;
};

TEST_F(RedisTls, ATrustedServerIsUsed) {
  std::vector<std::string> with_password = options("server");
  with_password.insert(with_password.end(), {"--requirepass", "hush"});
  RealRedis redis(with_password, true);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    RedisServer one = server(redis, host);
    one.password = "hush";
    one.prefix = host;
    StoreNode node(one, times());
    EXPECT_EQ(node.ask(gid_of(1)), kUnknown) << host;
    node.announce({gid_of(1)}, kIps);
    node.expect(gid_of(1), kFound);
    EXPECT_EQ(node.address(), ip_of("127.0.0.1"));
  }
}

TEST_F(RedisTls, TenThousandQuestionsAndARestart) {
  RealRedis redis(options("server"), true);
  StoreNode node(server(redis), times());
  node.announce({gid_of(1)}, kIps);
  node.expect(gid_of(1), kFound);
  expect_many_answers(node);
  redis.stop();
  node.expect(gid_of(1), kAway);
  redis.start();
  node.expect(gid_of(1), kFound);
}

TEST_F(RedisTls, NobodyElseIs) {
  const std::pair<const char*, std::array<const char*, 2>> cases[] = {
      {"stranger", {"certificate verify failed", "certificate verify failed"}},
      {"elsewhere", {"IP address mismatch", "hostname mismatch"}},
      {"outdated", {"certificate has expired", "certificate has expired"}},
  };
  for (const auto& [certificate, reasons] : cases) {
    RealRedis redis(options(certificate), true);
    expect_away(server(redis, "127.0.0.1"), reasons[0]);
    expect_away(server(redis, "localhost"), reasons[1]);
  }
  RealRedis redis(options("server"), true);
  EXPECT_EQ(StoreNode(server(redis), times()).ask(gid_of(1)), kUnknown) << "the test is wrong";
  RedisServer other = server(redis);
  other.ca_file = file("other.pem");
  expect_away(other, "certificate verify failed");
  other.ca_file.clear();  // the system trusts neither
  expect_away(other, "certificate verify failed");
  for (const char* none : {"no-such.pem", "server.key"}) {
    other.ca_file = file(none);
    expect_away(other, "no TLS: the file of authorities cannot be used");
  }
}

TEST_F(RedisTls, IsNeitherLeftOutNorSpokenUnasked) {
  RealRedis plain;
  expect_away(server(plain), "");
  EXPECT_EQ(plain.ask("dbsize"), "0\n");
  RealRedis redis(options("server"), true);
  RedisServer without = server(redis);
  without.tls = false;
  expect_away(without, "");
}

TEST_F(RedisTls, AServerThatWantsACertificateOfItsClientsIsAway) {
  std::vector<std::string> strict = options("server");
  strict.back() = "yes";
  RealRedis redis(strict, true);
  expect_away(server(redis), "TLS: connection lost: tlsv13 alert certificate required");
}

// A program of its own, which the test below runs. It ends while the store is in use.
TEST(RedisTlsProgram, DISABLED_Ends) {
  static StoreNode* node = nullptr;
  // It runs after what the plug-in and OpenSSL have the exit run, since those come later.
  ASSERT_EQ(std::atexit([] {
              if (node->ask(gid_of(1)) != kAway) _exit(3);  // OpenSSL was called once more
            }),
            0);
  RedisServer server = local_server(static_cast<uint16_t>(atoi(getenv("SHIFT_TEST_PORT"))));
  server.tls = true;
  server.ca_file = getenv("SHIFT_TEST_CA");
  RedisOptions options = quick();
  options.tls_plugin = SHIFT_TLS_PLUGIN;
  node = new StoreNode(server, options);
  node->expect(gid_of(1), kUnknown);
  std::exit(HasFailure() ? 1 : 0);
}

// OpenSSL takes itself down at the exit, and the layer's thread goes on until the last moment.
TEST_F(RedisTls, AProgramMayEndWhileItIsUsed) {
#ifdef SHIFT_FOREIGN
  GTEST_SKIP() << "a program of another machine cannot start itself";
#endif
  RealRedis redis(options("server"), true);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  // What OpenSSL is not called to give back is no leak.
  shell("ASAN_OPTIONS=detect_leaks=0 SHIFT_TEST_PORT=" + std::to_string(redis.port()) +
        " SHIFT_TEST_CA=" + file("good.pem") + " " + program +
        " --gtest_also_run_disabled_tests --gtest_filter=RedisTlsProgram.*");
}

}  // namespace
}  // namespace shift::net::test

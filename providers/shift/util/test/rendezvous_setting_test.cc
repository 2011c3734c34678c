// Tests SHIFT_RENDEZVOUS: what is taken, what is refused, and that no password is shown.
#include "util/rendezvous_setting.h"

#include <gtest/gtest.h>

#include <map>

#include "util/config.h"

namespace shift {
namespace {

std::optional<RendezvousSetting> parsed(std::string_view text) {
  RendezvousSetting setting;
  if (!rendezvous_parse(text, setting)) return std::nullopt;
  return setting;
}

RedisServer server(const char* host, uint16_t port) {
  RedisServer made;
  made.host = host;
  made.port = port;
  return made;
}

TEST(RendezvousSetting, TcpAloneIsTheDefault) {
  EXPECT_EQ(RendezvousSetting(), (RendezvousSetting{true, std::nullopt}));
  EXPECT_EQ(parsed("tcp"), RendezvousSetting());
}

TEST(RendezvousSetting, TakesAServerBesideTcpOrAlone) {
  const RedisServer plain = server("store.example", 6379);
  EXPECT_EQ(parsed("redis://store.example:6379"), (RendezvousSetting{false, plain}));
  EXPECT_EQ(parsed("tcp redis://store.example:6379"), (RendezvousSetting{true, plain}));
  EXPECT_EQ(parsed(" redis://store.example:6379 \t tcp "), (RendezvousSetting{true, plain}));
  EXPECT_EQ(parsed("redis://10.1.2.3:1"), (RendezvousSetting{false, server("10.1.2.3", 1)}));
  EXPECT_EQ(parsed("redis://[fd00::7]:65535"),
            (RendezvousSetting{false, server("fd00::7", 65535)}));
}

TEST(RendezvousSetting, TakesEveryPartOfAnAddress) {
  RedisServer all = server("store", 6380);
  all.user = "shift";
  all.password = "a:b, c@d%/";
  all.tls = true;
  all.ca_file = "/etc/my ca,1.pem";
  all.prefix = "east.rack-1:x_y";
  EXPECT_EQ(parsed("redis://shift:a:b%2C%20c%40d%25/@store:6380,tls,ca=/etc/my%20ca%2c1.pem,"
                   "prefix=east.rack-1:x_y"),
            (RendezvousSetting{false, all}));
  RedisServer only_password = server("store", 1);
  only_password.password = "secret";
  EXPECT_EQ(parsed("redis://:secret@store:1"), (RendezvousSetting{false, only_password}));
}

TEST(RendezvousSetting, RefusesEverythingElse) {
  const std::string long_name(65, 'a'), long_host(254, 'h'), long_word(1025, 'w');
  const std::string cases[] = {
      "",
      " ",
      "udp",
      "TCP",
      "tcp tcp",
      "tcp,redis://h:1",
      "redis",
      "redis://",
      "redis://h",
      "redis://h:",
      "redis://h:0",
      "redis://h:65536",
      "redis://h:1x",
      "redis://h:-1",
      "redis://:1",
      "redis:/h:1",
      "rediss://h:1",
      "redis://h/x:1",
      "redis://h;x:1",
      "redis://[::1:1",
      "redis://[h]:1",
      "redis://[::1]",
      "redis://h:1 redis://i:1",
      "redis://user@h:1",
      "redis://user:@h:1",
      "redis://:@h:1",
      "redis://a:b%2@h:1",
      "redis://a:b%zz@h:1",
      "redis://a:b%00@h:1",
      "redis://a:b%0a@h:1",
      "redis://h:1,",
      "redis://h:1,tsl",
      "redis://h:1,tls,",
      "redis://h:1,tls=1",
      "redis://h:1,ca=/f",
      "redis://h:1,tls,ca=f",
      "redis://h:1,tls,ca=",
      "redis://h:1,prefix=",
      "redis://h:1,prefix=a*b",
      "redis://h:1,prefix=" + long_name,
      "redis://" + long_host + ":1",
      "redis://:" + long_word + "@h:1",
  };
  for (const std::string& text : cases) {
    EXPECT_EQ(parsed(text), std::nullopt) << text;
    RendezvousSetting kept{false, server("kept", 1)};
    EXPECT_FALSE(rendezvous_parse(text, kept));
    EXPECT_EQ(kept, (RendezvousSetting{false, server("kept", 1)})) << text;
  }
}

TEST(RendezvousSetting, ShowsWhatIsTakenAgain) {
  for (const char* text :
       {"tcp", "redis://h:1", "tcp redis://10.0.0.1:6379,tls", "redis://[fd00::7]:1,prefix=x",
        "tcp redis://h:1,tls,ca=/etc/my%20ca%2c%40%25.pem,prefix=a:b"}) {
    ASSERT_TRUE(parsed(text)) << text;
    EXPECT_EQ(rendezvous_show(*parsed(text)), text);
  }
}

TEST(RendezvousSetting, ShowsNoPassword) {
  EXPECT_EQ(rendezvous_show(*parsed("redis://:hush@h:1,tls")), "redis://:***@h:1,tls");
  EXPECT_EQ(rendezvous_show(*parsed("redis://nobody:hush@h:1")), "redis://***:***@h:1");
}

TEST(RendezvousSetting, IsReadFromTheConfiguration) {
  std::vector<std::string> warnings;
  const auto read = [&](const char* value) {
    return config_read(
        [&](const char* key) {
          return std::string_view(key) == "SHIFT_RENDEZVOUS" ? value : nullptr;
        },
        nullptr, warnings);
  };
  EXPECT_EQ(read("tcp redis://h:7").rendezvous, (RendezvousSetting{true, server("h", 7)}));
  EXPECT_TRUE(warnings.empty());
  // A mistake in the rest must not bring the password into a log.
  EXPECT_EQ(read("redis://u:hush@h:7,tsl").rendezvous, RendezvousSetting());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].find("hush"), std::string::npos);
  EXPECT_NE(warnings[0].find("SHIFT_RENDEZVOUS=\"...\" is ignored: it must be tcp, redis://"),
            std::string::npos)
      << warnings[0];
}

}  // namespace
}  // namespace shift

// Tests what is believed about the addresses of a host, and for how long.
#include "net/host_book.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace shift::net::test {
namespace {

uint32_t host_ip(unsigned last) {
  return htonl(10u << 24 | last);
}
wire::Gid host_gid(unsigned last) {
  return wire::Gid::from_ipv4(host_ip(last));
}

// What several processes of a host share.
struct Shared {
  std::vector<SeenHost> hosts;
  int writes = 0;
};

class Memory final : public HostMemory {
 public:
  explicit Memory(Shared& shared) : shared_(shared) {}
  const std::vector<SeenHost>& recall(bool) override { return shared_.hosts; }
  void remember(const std::vector<SeenHost>& hosts) override {
    shared_.hosts = hosts;
    shared_.writes++;
  }

 private:
  Shared& shared_;
};

using Addresses = std::vector<uint32_t>;

class HostBookTest : public ::testing::Test {
 protected:
  HostBook make(const char* map_text = "") {
    HostMap map;
    std::string why;
    EXPECT_TRUE(map.parse(map_text, why)) << why;
    return {std::move(map), std::make_unique<Memory>(shared_), [this] { return now_; }};
  }

  static void note(HostBook& book, const wire::Gid& gid, const Addresses& addresses_be) {
    if (book.see(gid, addresses_be)) book.keep();
  }
  // By a process that has seen nothing before.
  void note_anew(const wire::Gid& gid, const Addresses& addresses_be) {
    HostBook book = make();
    note(book, gid, addresses_be);
  }

  int64_t now_ = 1'000'000'000;
  Shared shared_;
};

TEST_F(HostBookTest, WhatOneProcessHasSeenAnotherOneKnows) {
  HostBook seer = make(), other = make();
  EXPECT_EQ(other.others(host_gid(1)), Addresses{});
  note(seer, host_gid(1), {host_ip(1), host_ip(2)});
  EXPECT_EQ(other.others(host_gid(1)), Addresses{host_ip(2)});
  EXPECT_EQ(other.others(host_gid(2)), Addresses{}) << "nobody has seen a QP of that GID";
}

TEST_F(HostBookTest, TheOperatorsMapComesFirst) {
  HostBook book = make("10.0.0.1 10.0.0.7\nfe80::1 10.0.0.8\n");
  note(book, host_gid(1), {host_ip(1), host_ip(2)});
  EXPECT_EQ(book.others(host_gid(1)), (Addresses{host_ip(7), host_ip(2)}));
  EXPECT_EQ(book.others(host_gid(7)), Addresses{host_ip(1)});
  wire::Gid link_local;
  link_local.raw[0] = 0xfe;
  link_local.raw[1] = 0x80;
  link_local.raw[15] = 1;
  EXPECT_EQ(book.others(link_local), Addresses{host_ip(8)});
}

TEST_F(HostBookTest, WhatIsOldIsNotBelieved) {
  note_anew(host_gid(1), {host_ip(1), host_ip(2)});
  now_ += HostBook::kBelievedFor_s - 1;
  EXPECT_EQ(make().others(host_gid(1)), Addresses{host_ip(2)});
  now_ += 1;
  EXPECT_EQ(make().others(host_gid(1)), Addresses{});
}

TEST_F(HostBookTest, WhatComesFromTheFutureIsNotBelieved) {
  note_anew(host_gid(1), {host_ip(1), host_ip(2)});
  now_ -= 2 * 86400;
  EXPECT_EQ(make().others(host_gid(1)), Addresses{});
}

TEST_F(HostBookTest, AnAddressThatMovesLeavesItsOldHost) {
  HostBook book = make();
  note(book, host_gid(1), {host_ip(1), host_ip(2)});
  note(book, host_gid(5), {host_ip(5), host_ip(2)});
  EXPECT_EQ(book.others(host_gid(1)), Addresses{});
  EXPECT_EQ(book.others(host_gid(5)), Addresses{host_ip(2)});
}

// The GIDs of both NICs of a host have the same addresses.
TEST_F(HostBookTest, GidsOfOneHostShareTheirAddresses) {
  HostBook book = make();
  note(book, host_gid(1), {host_ip(1), host_ip(2)});
  note(book, host_gid(2), {host_ip(1), host_ip(2)});
  EXPECT_EQ(book.others(host_gid(1)), Addresses{host_ip(2)});
  EXPECT_EQ(book.others(host_gid(2)), Addresses{host_ip(1)});
}

TEST_F(HostBookTest, AnAddressWithoutAConnectionStays) {
  HostBook book = make();
  note(book, host_gid(1), {host_ip(1), host_ip(2), host_ip(3)});
  now_ += 7200;
  note(book, host_gid(1), {host_ip(1), host_ip(3)});
  EXPECT_EQ(book.others(host_gid(1)), (Addresses{host_ip(3), host_ip(2)}));
}

TEST_F(HostBookTest, NothingNewIsNotWritten) {
  HostBook book = make();
  for (int i = 0; i < 1000; i++) note(book, host_gid(1), {host_ip(1), host_ip(2)});
  EXPECT_EQ(shared_.writes, 1);
  note(book, host_gid(9), {host_ip(9)});
  EXPECT_EQ(shared_.writes, 1) << "one address is in the GID already";
  now_ += 3601;
  note(book, host_gid(1), {host_ip(1), host_ip(2)});
  EXPECT_EQ(shared_.writes, 2);
}

// In a job that begins, many hosts are seen at one time.
TEST_F(HostBookTest, WhatIsSeenAtOneTimeIsWrittenAtOnceAndKnownBefore) {
  HostBook book = make();
  note_anew(host_gid(3), {host_ip(3), host_ip(6)});
  EXPECT_TRUE(book.see(host_gid(1), {host_ip(1), host_ip(2)}));
  EXPECT_TRUE(book.see(host_gid(5), {host_ip(5), host_ip(6)}));
  EXPECT_TRUE(book.see(host_gid(7), {host_ip(7), host_ip(2)}));
  EXPECT_EQ(shared_.writes, 1);
  EXPECT_EQ(book.others(host_gid(5)), Addresses{host_ip(6)});
  book.keep();
  EXPECT_EQ(shared_.writes, 2);
  book.keep();
  EXPECT_EQ(shared_.writes, 2);
  HostBook other = make();
  EXPECT_EQ(other.others(host_gid(1)), Addresses{}) << "another host was seen there after it";
  EXPECT_EQ(other.others(host_gid(3)), Addresses{}) << "likewise";
  EXPECT_EQ(other.others(host_gid(5)), Addresses{host_ip(6)});
  EXPECT_EQ(other.others(host_gid(7)), Addresses{host_ip(2)});
}

TEST_F(HostBookTest, ItIsBounded) {
  HostBook book = make();
  for (unsigned i = 0; i < HostBook::kHostsMax + 100; i++) {
    now_++;
    note(book, host_gid(10 + 2 * i), {host_ip(10 + 2 * i), host_ip(11 + 2 * i)});
  }
  EXPECT_EQ(shared_.hosts.size(), HostBook::kHostsMax);
  EXPECT_EQ(book.others(host_gid(10)), Addresses{}) << "the oldest goes first";
  Addresses many;
  for (unsigned i = 0; i < 100; i++) many.push_back(host_ip(100'000 + i));
  note(book, host_gid(1), many);
  EXPECT_EQ(book.others(host_gid(1)).size(), HostBook::kAddressesMax);
}

}  // namespace
}  // namespace shift::net::test

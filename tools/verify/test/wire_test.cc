// What two ends say to each other is bounded, and nonsense ends it.
#include "../wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "../trouble.h"

namespace shift::verify {
namespace {

using std::chrono::milliseconds;

class WireTest : public testing::Test {
 protected:
  WireTest() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0); }
  ~WireTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  void put(const std::string& bytes) {
    ASSERT_EQ(write(ends_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  int ends_[2];
};

TEST_F(WireTest, messages_come_in_order_however_they_are_cut) {
  Wire wire(ends_[0]);
  put("{\"a\":1}\n{\"a\"");
  EXPECT_EQ(wire.hear().at("a"), 1);
  put(":2}\n");
  EXPECT_EQ(wire.hear().at("a"), 2);
  Wire(ends_[1]).say({{"a", 3}});
  EXPECT_EQ(wire.hear().at("a"), 3);
}

TEST_F(WireTest, nonsense_ends_it) {
  for (const char* nonsense : {"\n", "[]\n", "7\n", "{\"a\":\n", "\xff\xfe\n"}) {
    put(nonsense);
    EXPECT_THROW(Wire(ends_[0]).hear(), Trouble) << nonsense;
  }
  put("{\"trouble\":\"so\"}\n");
  EXPECT_THROW(Wire(ends_[0]).hear(), Trouble);
}

TEST_F(WireTest, a_line_is_bounded) {
  put(std::string(Wire::kLineMax + 4097, 'x'));
  EXPECT_THROW(Wire(ends_[0]).hear(milliseconds(60'000)), Trouble);
}

TEST_F(WireTest, silence_is_bounded) {
  put("{\"a\"");
  EXPECT_THROW(Wire(ends_[0]).hear(milliseconds(20)), Trouble);
}

TEST_F(WireTest, an_end_that_is_gone_ends_it) {
  close(ends_[1]);
  ends_[1] = -1;
  EXPECT_THROW(Wire(ends_[0]).hear(), Trouble);
  EXPECT_THROW(Wire(ends_[0]).say({{"a", 1}}), Trouble);
}

}  // namespace
}  // namespace shift::verify

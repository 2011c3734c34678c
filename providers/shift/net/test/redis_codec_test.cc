// Tests how commands are written and replies are read, in pieces of any size.
#include "net/redis_codec.h"

#include <gtest/gtest.h>

namespace shift::net {
namespace {

using Kind = RedisReply::Kind;
using Next = RedisReplies::Next;

class RedisCodec : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!redis_is_built()) GTEST_SKIP() << "this build has no hiredis";
  }
};

// All replies of the bytes, which come in pieces; the last one is followed by how the bytes ended.
std::pair<std::vector<RedisReply>, Next> read(const std::string& bytes, size_t piece) {
  RedisReplies replies;
  std::vector<RedisReply> found;
  Next next = Next::kIncomplete;
  for (size_t at = 0; at < bytes.size() && next != Next::kNonsense; at += piece) {
    replies.feed(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
    RedisReply reply;
    while ((next = replies.next(reply)) == Next::kReply) found.push_back(reply);
  }
  if (next == Next::kNonsense) {
    replies.feed(std::string_view("+OK\r\n"));
    RedisReply reply;
    EXPECT_EQ(replies.next(reply), Next::kNonsense) << "it must not recover";
  }
  return {found, next};
}

constexpr size_t kPieces[] = {1, 2, 3, 7, 64, 16384};

TEST_F(RedisCodec, WritesWordsOfAnyBytes) {
  std::string out = "before";
  const std::string odd("a\0\r\n", 4);
  ASSERT_TRUE(redis_append(out, {"SET", odd, ""}));
  EXPECT_EQ(out, "before*3\r\n$3\r\nSET\r\n$4\r\n" + odd + "\r\n$0\r\n\r\n");
}

TEST_F(RedisCodec, ReadsEachKindInAnyPieces) {
  const std::string bytes =
      "+OK\r\n-WRONGPASS hush\r\n:-42\r\n$5\r\na\r\nbc\r\n$0\r\n\r\n$-1\r\n*-1\r\n*0\r\n"
      "*2\r\n$1\r\nx\r\n$2\r\nyz\r\n+END\r\n";
  for (const size_t piece : kPieces) {
    const auto [found, end] = read(bytes, piece);
    EXPECT_EQ(end, Next::kIncomplete);
    ASSERT_EQ(found.size(), 10u) << piece;
    EXPECT_TRUE(found[0].kind == Kind::kStatus && found[0].text == "OK");
    EXPECT_TRUE(found[1].is_error());
    EXPECT_EQ(found[1].error_code(), "WRONGPASS");
    EXPECT_TRUE(found[2].kind == Kind::kInteger && found[2].integer == -42);
    EXPECT_TRUE(found[3].kind == Kind::kText && found[3].text == "a\r\nbc");
    EXPECT_TRUE(found[4].kind == Kind::kText && found[4].text.empty());
    EXPECT_EQ(found[5].kind, Kind::kNil);
    EXPECT_EQ(found[6].kind, Kind::kNil);
    EXPECT_TRUE(found[7].kind == Kind::kList && found[7].list.empty());
    EXPECT_TRUE(found[8].kind == Kind::kList);
    EXPECT_EQ(found[8].list, (std::vector<std::string>{"x", "yz"}));
    EXPECT_EQ(found[9].text, "END");
  }
}

TEST_F(RedisCodec, RefusesWhatIsNoReplyToItsCommands) {
  std::string deep;
  for (int i = 0; i < 20; i++) deep += "*1\r\n";
  const std::string cases[] = {
      "HTTP/1.1 400 Bad Request\r\n",
      "x\r\n",
      "*17\r\n",
      "*2147483647\r\n",
      "*99999999999999999999\r\n",
      "*1\r\n*1\r\n$1\r\nx\r\n",
      "*1\r\n:5\r\n",
      "*1\r\n+OK\r\n",
      "*1\r\n$-1\r\n",
      deep,
      "$4097\r\n" + std::string(4097, 'x') + "\r\n",
      "*1\r\n$4097\r\n" + std::string(4097, 'x') + "\r\n",
      "+" + std::string(5000, 'x'),
      "-" + std::string(5000, 'x'),
      "$" + std::string(5000, '1'),
      "$1000000000\r\n" + std::string(5000, 'x'),
      "*2\r\n$1\r\nx\r\n$1000000000\r\n" + std::string(5000, 'x'),
  };
  for (const std::string& bytes : cases)
    for (const size_t piece : kPieces) {
      const auto [found, end] = read(bytes, piece);
      EXPECT_EQ(end, Next::kNonsense) << piece << " " << bytes.substr(0, 60);
      EXPECT_TRUE(found.empty());
    }
}

TEST_F(RedisCodec, AnErrorIsCalledByItsCodeAlone) {
  const std::pair<const char*, const char*> cases[] = {
      {"ERR unknown command 'AUTH', with args beginning with: 'hush'", "ERR"},
      {"LOADING", "LOADING"},
      {"MAX_CLIENTS x", "MAX_CLIENTS"},
      {"", "an unknown error"},
      {"hush", "an unknown error"},
      {"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "an unknown error"},
  };
  for (const auto& [text, code] : cases) {
    RedisReply reply;
    reply.text = text;
    EXPECT_EQ(reply.error_code(), code);
  }
}

}  // namespace
}  // namespace shift::net
